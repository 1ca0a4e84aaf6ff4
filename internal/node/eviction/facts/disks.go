package facts

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/node/eviction"
)

// Disks reads the signals of file systems. It implements eviction.Facts. Each field is a directory: of the agent, of
// the runtime's images, and of the writable layers of its containers.
type Disks struct{ Node, Image, Container string }

// Layout says which of the directories share a file system.
func (d Disks) Layout() (layout eviction.Disks, err error) {
	for _, x := range []struct {
		path string
		id   *string
	}{{d.Node, &layout.Node}, {d.Image, &layout.Image}, {d.Container, &layout.Container}} {
		var s unix.Stat_t
		if err := unix.Stat(x.path, &s); err != nil {
			return layout, fmt.Errorf("find the file system of %s: %w", x.path, err)
		}
		*x.id = strconv.FormatUint(s.Dev, 10)
	}
	return layout, nil
}

// Observe implements eviction.Facts.
func (d Disks) Observe(now time.Time) (eviction.Observations, error) {
	all := eviction.Observations{}
	var errs []error
	for _, disk := range []struct {
		path          string
		bytes, inodes eviction.Signal
	}{
		{d.Node, eviction.NodeFsAvailable, eviction.NodeFsInodesFree},
		{d.Image, eviction.ImageFsAvailable, eviction.ImageFsInodesFree},
		{d.Container, eviction.ContainerFsAvailable, eviction.ContainerFsInodesFree},
	} {
		var s unix.Statfs_t
		if err := unix.Statfs(disk.path, &s); err != nil {
			errs = append(errs, fmt.Errorf("read %s of %s: %w", disk.bytes, disk.path, err))
			continue
		}
		all[disk.bytes] = eviction.Observation{Available: int64(s.Bavail) * s.Bsize,
			Capacity: int64(s.Blocks) * s.Bsize, At: now}
		if s.Files > 0 { // a file system such as btrfs has no fixed number
			all[disk.inodes] = eviction.Observation{Available: int64(s.Ffree), Capacity: int64(s.Files), At: now}
		}
	}
	return all, errors.Join(errs...)
}
