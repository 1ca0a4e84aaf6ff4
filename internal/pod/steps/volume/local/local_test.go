package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/roottest"
	"github.com/berth-run/berth/internal/pod/steps/volume"
)

func TestPublish(t *testing.T) {
	roottest.Need(t, "making device nodes")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const loop = 7 // its major number: Publish reads the type of the node and does not open the device
	if err := unix.Mknod(filepath.Join(dir, "device"), unix.S_IFBLK|0o600, int(unix.Mkdev(loop, 7))); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("device", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, path string
		block      bool
		err        string
	}{
		{"a directory", dir, false, ""},
		{"a device", dir + "/device", true, ""},
		{"a link to a device", dir + "/link", true, ""},
		{"nothing", dir + "/none", false, "does not exist"},
		{"a file", dir + "/file", false, "is neither a directory nor a block device"},
		{"a directory for a device", dir, true, "is not a block device"},
		{"relative", "srv", false, "invalid path"},
		{"a path that climbs", "/srv/../etc", false, "invalid path"},
		{"through /proc", "/proc/self/root", false, "open local volume"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			v := &corev1.PersistentVolume{}
			v.Spec.Local = &corev1.LocalVolumeSource{Path: test.path}
			path, err := Kind{}.Publish(t.Context(), volume.Request{Persistent: v, Block: test.block})
			if test.err == "" && (err != nil || path != test.path) {
				t.Errorf("%q, %v", path, err)
			}
			if test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("got %v, want %q", err, test.err)
			}
		})
	}
}
