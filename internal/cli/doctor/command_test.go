package doctor

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"

	"github.com/berth-run/berth/internal/agent/engine"
	"github.com/berth-run/berth/internal/agent/engine/endpoint"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/node/doctor"
)

// kinds has the properties of runtimes by endpoint. It makes none.
type kinds map[string]engine.Traits

func (kinds) Runtime(endpoint.Choice, *config.Config, trace.TracerProvider, *slog.Logger) engine.Runtime {
	panic("doctor makes a runtime")
}

func (k kinds) Traits(c endpoint.Choice, _ *config.Config) engine.Traits { return k[c.Endpoint] }

func TestSettingsFollowTheRuntime(t *testing.T) {
	all := kinds{"": {BuiltInNetwork: true}, "docker://": {Shared: true, BuiltInNetwork: true},
		"unix:///run/x.sock": {Shared: true}}
	for configured, want := range map[string]doctor.Config{
		"":                   {BuiltInNetwork: true, OwnImages: true},
		"embedded":           {BuiltInNetwork: true, OwnImages: true},
		"docker://":          {BuiltInNetwork: true},
		"unix:///run/x.sock": {},
	} {
		c := &config.Config{Runtime: config.Runtime{Endpoint: configured}}
		got, err := settings(t.Context(), c, all)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%q: error %v (-want +got):\n%s", configured, err, diff)
		}
	}
}

// A node with pods of a kubelet whose runtime does not answer has no runtime that an agent could choose.
func TestSettingsNameARuntimeThatCannotBeChosen(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "pods", "uid"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := &config.Config{RootDir: root,
		Runtime: config.Runtime{KubeletsDefault: "unix://" + filepath.Join(root, "none.sock")}}
	s, err := settings(t.Context(), c, kinds{})
	if diff := cmp.Diff(doctor.Config{RootDir: root}, s); diff != "" || err == nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	if f := noRuntime(err); f.Level != doctor.Problem || f.Next == "" {
		t.Errorf("finding %+v", f)
	}
}
