package stats

import (
	"context"
	"errors"
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

// measureTimeout limits how long requests wait for a measurement, from its begin. A file system whose server is gone
// never answers, and a pod may have many of them: a later request does not wait for them again.
const measureTimeout = 10 * time.Second

// sizes caches the measured sizes of directories and volumes. Each path is measured by one goroutine at a time, and
// once in a period.
type sizes struct {
	mu    sync.Mutex
	known map[string]*size
}

// size is one measurement. It is running until done is closed.
type size struct {
	at   time.Time
	done chan struct{}
	fs   *statsapi.FsStats
	err  error
}

// of returns the measurement of a path if it is younger than period; otherwise it calls measure. Failures are cached
// too. A measurement continues after its caller has left, and other callers get its result.
func (s *sizes) of(ctx context.Context, path string, now time.Time, period time.Duration,
	measure func(context.Context) (*statsapi.FsStats, error)) (*statsapi.FsStats, error) {
	one := s.begin(ctx, path, now, period, measure)
	patience := measureTimeout
	if one.running() {
		patience -= now.Sub(one.at)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience,
		fmt.Errorf("measure %s: no result after %v", path, measureTimeout))
	defer cancel()
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

// begin returns the cached or running measurement of a path, or starts a new one.
func (s *sizes) begin(ctx context.Context, path string, now time.Time, period time.Duration,
	measure func(context.Context) (*statsapi.FsStats, error)) *size {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was := s.known[path]; was != nil && (was.running() || now.Sub(was.at) < period) {
		return was
	}
	for path, k := range s.known {
		if now.Sub(k.at) > time.Hour && !k.running() {
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
		} else if gone(one.err) { // it may appear
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

func (s *size) running() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// fileSystem returns the size and the free space of the file system that holds a path.
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

// fileSystem returns the file system of a store, with the usage of the store only.
func (s Store) fileSystem(now time.Time) (*statsapi.FsStats, error) {
	f, err := fileSystem(s.Dir, now)
	if err == nil {
		f.UsedBytes, f.InodesUsed = new(s.Bytes), new(s.Inodes)
	}
	return f, err
}

// onTwoDevices reports whether two paths are on different file systems.
func onTwoDevices(a, b string) (bool, error) {
	var one, two unix.Stat_t
	err := errors.Join(unix.Stat(a, &one), unix.Stat(b, &two))
	return one.Dev != two.Dev, err
}

// directory returns the file system that holds a path, with the usage below the path only.
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

// directory returns the cached usage below a path.
func (s *Stats) directory(ctx context.Context, path string) (*statsapi.FsStats, error) {
	return s.sizes.of(ctx, path, s.Now(), s.VolumePeriod, func(ctx context.Context) (*statsapi.FsStats, error) {
		return directory(ctx, path, s.Now())
	})
}

// errNoDriverStats is for a volume that only its driver can measure, before the driver has reported anything.
var errNoDriverStats = fmt.Errorf("its driver has not reported any usage: %w", os.ErrNotExist)

// volume returns the usage of a volume. Its driver may report it. Otherwise it is measured: by the kernel for a device
// or a file system of its own, by walking for a directory.
func (s *Stats) volume(ctx context.Context, v Volume) (*statsapi.VolumeStats, error) {
	f, reported, err := (*statsapi.FsStats)(nil), false, error(nil)
	if s.Drivers != nil {
		f, reported = s.Drivers.VolumeUsage(v.Path)
	}
	switch {
	case reported && f == nil:
		err = errNoDriverStats
	case !reported:
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
		defer s.timed("block", time.Now())
		return device(v.Path)
	}
	own, err := mountPoint(v.Path, s.Dir)
	if err != nil {
		return nil, err
	}
	if own {
		defer s.timed("statfs", time.Now())
		return fileSystem(v.Path, s.Now())
	}
	defer s.timed("du", time.Now())
	return directory(ctx, v.Path, s.Now())
}

// timed records how long a volume was measured, with the kubelet's word for the way.
func (s *Stats) timed(how string, began time.Time) {
	s.took.WithLabelValues(how).Observe(time.Since(began).Seconds())
}

// device returns the size of a block device. Its used space is unknown.
func device(path string) (*statsapi.FsStats, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was opened for reading only
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	return &statsapi.FsStats{CapacityBytes: new(uint64(end))}, nil
}

// mountPoint reports whether a path is on another file system than the pods' directories.
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
