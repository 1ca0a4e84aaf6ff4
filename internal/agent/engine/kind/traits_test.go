package kind

import (
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/agent/engine"
	"github.com/berth-run/berth/internal/agent/engine/endpoint"
	"github.com/berth-run/berth/internal/config"
	inprocess "github.com/berth-run/berth/internal/config/embedded"
	"github.com/berth-run/berth/internal/cri"
)

func TestKindsOfRuntimeDiffer(t *testing.T) {
	c := &config.Config{RootDir: t.TempDir(), RunDir: "/run/berth"}
	log := slog.New(slog.DiscardHandler)
	own, external := newEmbedded(c, nil, log), socket{endpoint.Choice{Endpoint: "unix:///run/x.sock"}, c}
	want := map[string]engine.Traits{
		"": {NoSELinux: "the embedded runtime sets none; use a containerd that does (enable_selinux)",
			StateDir: "/run/berth", InProcess: true, BuiltInNetwork: true, LogsOOMFloor: true,
			HandlerPrograms: []inprocess.Description{{Name: "runc", Program: "runc (built in)"}}},
		"docker://":          {Shared: true, StateDir: "/", BuiltInNetwork: true},
		"unix:///run/x.sock": {Shared: true, StateDir: "/"},
	}
	got := map[string]engine.Traits{}
	for e := range want {
		got[e] = All{}.Traits(endpoint.Choice{Endpoint: e}, c)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if own.Progress() == nil || external.Progress() != nil {
		t.Error("only the embedded runtime reports how far pulls are")
	}
	if err := external.RemoveNetwork(t.Context()); err != nil {
		t.Errorf("a reset of an agent with its own runtime: %v", err)
	}
}

// A flag of the embedded runtime is an error if another runtime is used.
func TestSocketRefusesFlagsOfTheEmbeddedRuntime(t *testing.T) {
	c := &config.Config{Runtime: config.Runtime{
		Embedded: inprocess.Settings{CRIListen: "unix:///run/berth/cri.sock"}}}
	s := socket{endpoint.Choice{Endpoint: "unix:///run/x.sock", Reason: "containerRuntimeEndpoint says so"}, c}
	_, err := s.Connect(t.Context(), nil, cri.Options{})
	want := "--cri-listen is about the embedded runtime, but the runtime is unix:///run/x.sock " +
		"(containerRuntimeEndpoint says so): leave it out, or write containerRuntimeEndpoint: embedded " +
		"into the file of --config"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// Settings of the embedded runtime that Docker's shim does not have are errors.
func TestDockerRefusesFlagsOfTheEmbeddedRuntime(t *testing.T) {
	c := &config.Config{RootDir: t.TempDir(), RunDir: t.TempDir(), Runtime: config.Runtime{
		Embedded: inprocess.Settings{NRISocket: "/run/nri.sock"}}}
	choice := endpoint.Choice{Endpoint: "docker://", Reason: "containerRuntimeEndpoint says so"}
	d := All{}.Runtime(choice, c, nil, slog.New(slog.DiscardHandler))
	_, err := d.Connect(t.Context(), nil, cri.Options{})
	want := "--nri-socket is about the embedded runtime, but the runtime is docker:// (containerRuntimeEndpoint says " +
		"so): leave it out"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err := d.Import(t.Context(), nil); err == nil {
		t.Error("an import without a shim succeeds")
	}
}
