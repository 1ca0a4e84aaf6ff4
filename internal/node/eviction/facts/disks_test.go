package facts

import (
	"testing"
	"time"

	"github.com/berth-run/berth/internal/node/eviction"
)

func TestDisks(t *testing.T) {
	dir, now := t.TempDir(), time.Unix(1, 0)
	disks := Disks{Node: dir, Image: "/proc", Container: dir}
	layout, err := disks.Layout()
	if err != nil || layout.Node != layout.Container || layout.Node == layout.Image {
		t.Errorf("layout %+v, error %v", layout, err)
	}
	seen, err := disks.Observe(now)
	if err != nil {
		t.Fatal(err)
	}
	node := seen[eviction.NodeFsAvailable]
	if node.Available <= 0 || node.Available > node.Capacity || !node.At.Equal(now) {
		t.Errorf("observed %+v", node)
	}
	if seen[eviction.ContainerFsAvailable].Capacity != node.Capacity {
		t.Errorf("two capacities of one file system: %+v", seen)
	}
	if _, ok := seen[eviction.ImageFsInodesFree]; ok {
		t.Error("observed the inodes of a file system that has no fixed number")
	}

	disks.Image = dir + "/missing"
	if _, err := disks.Layout(); err == nil {
		t.Error("no error for a missing directory")
	}
	if seen, err = disks.Observe(now); err == nil || len(seen) != 4 {
		t.Errorf("observed %+v, error %v", seen, err)
	}
}
