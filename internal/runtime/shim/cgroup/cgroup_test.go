package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-run/berth/internal/base/eventually"
)

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
		if group, err := new(Finder).Open(test.container, test.paths); err == nil {
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

// A write to the file that counts OOM kills notifies the watch of that file alone, until the file is removed.
func TestOOMWatchNotifiesOfItsFile(t *testing.T) {
	dir := t.TempDir()
	notified := make(chan string, 100)
	var w OOMWatch
	for _, name := range []string{"a", "b"} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := w.addFile(file, func() bool { notified <- name; return true }); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "b"), []byte("oom_kill 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if name := <-notified; name != "b" {
		t.Errorf("a write to b notified %s", name)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the watches end with their files", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.notify) == 0
	})
	if err := w.inotify.Close(); err != nil {
		t.Error(err)
	}
}
