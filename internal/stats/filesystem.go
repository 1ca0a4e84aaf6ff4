package stats

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berth-run/berth/internal/diskusage"
)

// size is what a directory was measured to take.
type size struct {
	at    time.Time
	usage diskusage.Usage
}

// sizes remembers what was measured.
type sizes struct {
	mu    sync.Mutex
	known map[string]size
}

// of measures a directory, unless it was within period.
func (s *sizes) of(ctx context.Context, path string, now time.Time, period time.Duration) (diskusage.Usage, time.Time, error) {
	s.mu.Lock()
	was, known := s.known[path]
	s.mu.Unlock()
	if known && now.Sub(was.at) < period {
		return was.usage, was.at, nil
	}
	usage, err := diskusage.Measure(ctx, path)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		delete(s.known, path)
		return usage, now, err
	}
	s.known[path] = size{now, usage}
	for path, k := range s.known {
		if now.Sub(k.at) > time.Hour {
			delete(s.known, path)
		}
	}
	return usage, now, nil
}

// fileSystem is the one that a path is on: its size and what is free, without a
// word of who uses it.
func fileSystem(path string, now time.Time) (*statsapi.FsStats, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return nil, err
	}
	block := uint64(st.Frsize)
	return &statsapi.FsStats{
		Time:           metav1.NewTime(now),
		AvailableBytes: new(st.Bavail * block), CapacityBytes: new(st.Blocks * block), UsedBytes: new((st.Blocks - st.Bfree) * block),
		InodesFree: new(st.Ffree), Inodes: new(st.Files), InodesUsed: new(st.Files - st.Ffree),
	}, nil
}

// directory is the file system of a path, with what is used below the path alone.
func (s *Stats) directory(ctx context.Context, path string) (*statsapi.FsStats, error) {
	f, err := fileSystem(path, s.Now())
	if err != nil {
		return nil, err
	}
	u, at, err := s.sizes.of(ctx, path, s.Now(), s.VolumePeriod)
	if err != nil {
		return nil, err
	}
	f.Time, f.UsedBytes, f.InodesUsed = metav1.NewTime(at), new(uint64(u.Bytes)), new(uint64(u.Inodes))
	return f, nil
}

// volume is what a volume takes: of one that is a file system of its own the
// kernel knows.
func (s *Stats) volume(ctx context.Context, v Volume, p string) (*statsapi.VolumeStats, error) {
	own, err := mountPoint(v.Path, p)
	if err != nil {
		return nil, err
	}
	var f *statsapi.FsStats
	if own {
		f, err = fileSystem(v.Path, s.Now())
	} else {
		f, err = s.directory(ctx, v.Path)
	}
	if err != nil {
		return nil, err
	}
	return &statsapi.VolumeStats{FsStats: *f, Name: v.Name, PVCRef: v.Claim}, nil
}

// mountPoint says that a path is on another file system than where the pods'
// directories are.
func mountPoint(path, dir string) (bool, error) {
	var a, b unix.Stat_t
	if err := unix.Stat(path, &a); err != nil {
		return false, err
	}
	if err := unix.Stat(dir, &b); err != nil {
		return false, err
	}
	return a.Dev != b.Dev, nil
}
