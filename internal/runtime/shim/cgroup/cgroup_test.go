package cgroup

import "testing"

// The processes of a cgroup that is not the container's alone are never the shim's to kill.
func TestOpenOfOthersFails(t *testing.T) {
	for _, test := range []struct {
		name, container string
		paths           map[string]string
	}{
		{"ending process", "c1", map[string]string{"devices": "/", "memory": "/"}},
		{"one hierarchy is the root", "c1", map[string]string{"devices": "/", "memory": "/pods/c1"}},
		{"parent", "c1", map[string]string{"devices": "/pods", "memory": "/pods"}},
		{"name in the parent only", "c1", map[string]string{unified: "/c1/others"}},
		{"root of cgroup v2", "c1", map[string]string{unified: "/"}},
		{"no container", "", map[string]string{unified: "/pods"}},
		{"no path", "c1", nil},
	} {
		if group, err := Open(test.container, test.paths); err == nil {
			t.Errorf("%s: opened %+v", test.name, group)
		}
	}
}

func TestPathOf(t *testing.T) {
	for name, want := range map[string]string{
		"/kubepods/podx/id": "/kubepods/podx/id",
		"kubepods-besteffort-podx.slice:cri-containerd:id": "/kubepods.slice/kubepods-besteffort.slice/" +
			"kubepods-besteffort-podx.slice/cri-containerd-id.scope",
		"-.slice:cri-containerd:id": "/cri-containerd-id.scope",
		"":                          "/",
	} {
		if got := pathOf(name); got != want {
			t.Errorf("cgroup %q: %s, want %s", name, got, want)
		}
	}
}
