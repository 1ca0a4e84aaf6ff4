package volume

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/roottest"
)

func TestLinkFollowsTheNameOfTheDevice(t *testing.T) {
	target := filepath.Join(t.TempDir(), "disk")
	for _, device := range []string{"/dev/sda", "/dev/sda", "/dev/sdb"} {
		if err := Link(device, target); err != nil {
			t.Fatal(err)
		}
		if to, err := os.Readlink(target); to != device || err != nil {
			t.Errorf("the link leads to %q, %v", to, err)
		}
	}
	for range 2 {
		if err := Unplace(target); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(target); !os.IsNotExist(err) {
		t.Errorf("the link is still there: %v", err)
	}
}

func TestBoundUsesFindsWhatAKubeletHasMounted(t *testing.T) {
	roottest.Need(t, "mounting")
	root := t.TempDir()
	disk := filepath.Join(root, "plugins/kubernetes.io/iscsi/iface-default/disk")
	if err := os.MkdirAll(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Unmount(root) })
	for _, target := range []string{"pods/u1/volumes/kubernetes.io~iscsi/data",
		"pods/u2/volumes/kubernetes.io~fc/data"} {
		for range 2 {
			if err := Bind(disk, filepath.Join(root, target)); err != nil {
				t.Fatal(err)
			}
		}
	}
	name := func(dir string) (string, bool) { return strings.ToUpper(filepath.Base(dir)), true }
	got, err := BoundUses(root, "iscsi", name)
	want := []Use{{StageID: "DISK", UID: "u1", Volume: "data"}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if err := Unplace(filepath.Join(root, "pods/u1/volumes/kubernetes.io~iscsi/data")); err != nil {
		t.Error(err)
	}
	if got, err := BoundUses(root, "iscsi", name); len(got) > 0 || err != nil {
		t.Errorf("after the pod: %v, %v", got, err)
	}
}
