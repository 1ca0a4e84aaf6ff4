package embedded

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDescribe(t *testing.T) {
	s := Settings{Handlers: map[string]Handler{
		"crun": {Binary: "/usr/bin/crun", Options: HandlerOptions{Root: "/run/crun", NoNewKeyring: true}},
		"kata": {Shim: "io.containerd.kata.v2", Options: HandlerOptions{ConfigPath: "/etc/kata.toml"},
			PrivilegedWithoutHostDevices: true},
		"wasm": {Shim: "io.containerd.wasmtime.v1", Binary: "/opt/shim"},
	}}
	want := []Description{
		{Name: "crun", Program: "/usr/bin/crun", CgroupDriver: "systemd",
			Options: []string{"root=/run/crun", "noNewKeyring=true"}},
		{Name: "kata", Program: "io.containerd.kata.v2",
			Options: []string{"configPath=/etc/kata.toml", "privilegedWithoutHostDevices=true"}},
		{Name: "runc", Program: "runc (built in)", CgroupDriver: "systemd"},
		{Name: "wasm", Program: "io.containerd.wasmtime.v1 (/opt/shim)"},
	}
	if diff := cmp.Diff(want, s.Describe("systemd")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAnnotation(t *testing.T) {
	s := Settings{Handlers: map[string]Handler{"kata": {Shim: "io.containerd.kata.v2"}}}
	const want = `[{"name":"kata","program":"io.containerd.kata.v2"},` +
		`{"name":"runc","program":"runc (built in)","cgroupDriver":"cgroupfs"}]`
	if got, err := s.Annotation("cgroupfs"); err != nil || got != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	if got, err := (Settings{}).Annotation("cgroupfs"); err != nil || got != "" {
		t.Errorf("without handlers: %q, %v", got, err)
	}
}
