package stats

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berth-run/berth/internal/base/diskusage"
)

// patience is how long a question waits for a measurement: a file system whose
// server is away answers nobody.
const patience = 10 * time.Second

// sizes are what directories and volumes were found to take. Each path is measured
// once at a time, and once in a period.
type sizes struct {
	mu    sync.Mutex
	known map[string]*size
}

// size is one measurement, which is under way until done is closed.
type size struct {
	at   time.Time
	done chan struct{}
	fs   *statsapi.FsStats
	err  error
}

// of is what measure says of a path, or said within period before now. What fails
// is not tried again before the period has passed. A measurement goes on when the
// one who asked has left: others get what it finds.
func (s *sizes) of(ctx context.Context, path string, now time.Time, period time.Duration,
	measure func(context.Context) (*statsapi.FsStats, error)) (*statsapi.FsStats, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience,
		fmt.Errorf("measure %s: it takes longer than %v", path, patience))
	defer cancel()
	one := s.begin(ctx, path, now, period, measure)
	select {
	case <-one.done:
		if one.err != nil {
			return nil, one.err
		}
		fs := *one.fs
		return &fs, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// begin is the last measurement of a path, or a new one.
func (s *sizes) begin(ctx context.Context, path string, now time.Time, period time.Duration,
	measure func(context.Context) (*statsapi.FsStats, error)) *size {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was := s.known[path]; was != nil && (was.underWay() || now.Sub(was.at) < period) {
		return was
	}
	for path, k := range s.known {
		if now.Sub(k.at) > time.Hour && !k.underWay() {
			delete(s.known, path)
		}
	}
	one := &size{at: now, done: make(chan struct{})}
	s.known[path] = one
	go func() {
		defer close(one.done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Hour)
		defer cancel()
		if one.fs, one.err = measure(ctx); one.err == nil {
			one.fs.Time = metav1.NewTime(now)
		} else if gone(one.err) { // it may come
			s.forget(path, one)
		}
	}()
	return one
}

func (s *sizes) forget(path string, one *size) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[path] == one {
		delete(s.known, path)
	}
}

func (s *size) underWay() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
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
		AvailableBytes: new(st.Bavail * block), CapacityBytes: new(st.Blocks * block),
		UsedBytes:  new((st.Blocks - st.Bfree) * block),
		InodesFree: new(st.Ffree), Inodes: new(st.Files), InodesUsed: new(st.Files - st.Ffree),
	}, nil
}

// directory is the file system of a path, with what is used below the path alone.
func directory(ctx context.Context, path string, now time.Time) (*statsapi.FsStats, error) {
	f, err := fileSystem(path, now)
	if err != nil {
		return nil, err
	}
	u, err := diskusage.Measure(ctx, path)
	if err != nil {
		return nil, err
	}
	f.UsedBytes, f.InodesUsed = new(uint64(u.Bytes)), new(uint64(u.Inodes))
	return f, nil
}

// directory is what is below a path.
func (s *Stats) directory(ctx context.Context, path string) (*statsapi.FsStats, error) {
	return s.sizes.of(ctx, path, s.Now(), s.VolumePeriod, func(ctx context.Context) (*statsapi.FsStats, error) {
		return directory(ctx, path, s.Now())
	})
}

// errSilent is of a volume that only its driver can measure, which has not.
var errSilent = fmt.Errorf("its driver has told nothing of it: %w", os.ErrNotExist)

// volume is what a volume takes: its driver may tell. Else the kernel knows it of a
// device, and of a file system of its own.
func (s *Stats) volume(ctx context.Context, v Volume) (*statsapi.VolumeStats, error) {
	f, told, err := (*statsapi.FsStats)(nil), false, error(nil)
	if s.Told != nil {
		f, told = s.Told(v.Path)
	}
	switch {
	case told && f == nil:
		err = errSilent
	case !told:
		f, err = s.sizes.of(ctx, v.Path, s.Now(), s.VolumePeriod, func(ctx context.Context) (*statsapi.FsStats, error) {
			return s.measure(ctx, v)
		})
	}
	if err != nil {
		return nil, err
	}
	return &statsapi.VolumeStats{FsStats: *f, Name: v.Name, PVCRef: v.Claim}, nil
}

func (s *Stats) measure(ctx context.Context, v Volume) (*statsapi.FsStats, error) {
	if v.Block {
		return device(v.Path)
	}
	own, err := mountPoint(v.Path, s.Dir)
	if err != nil {
		return nil, err
	}
	if own {
		return fileSystem(v.Path, s.Now())
	}
	return directory(ctx, v.Path, s.Now())
}

// device is a block device, of which nobody knows how much of it is in use.
func device(path string) (*statsapi.FsStats, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	return &statsapi.FsStats{CapacityBytes: new(uint64(end))}, nil
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
