package pressure

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/diskusage"
	"github.com/berth-run/berth/internal/base/quota"
	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/eviction/storage"
)

// Storage are the pods as users of local storage. It implements storage.Pods and fleet.Watcher.
type Storage struct {
	disk    *Disk
	changed wake.Signal

	mu   sync.Mutex
	runs *runtimeDisk // nil until the runtime has named its file systems
}

// runtimeDisk is where the runtime keeps writable layers.
type runtimeDisk struct {
	path string
	// own: logs and volumes are on another file system.
	own bool
}

// NewStorage makes a Storage that measures as d does.
func NewStorage(d *Disk) *Storage { return &Storage{disk: d, changed: wake.New()} }

// Changed implements storage.Pods.
func (s *Storage) Changed() <-chan struct{} { return s.changed.C() }

// PodChanged implements fleet.Watcher.
func (s *Storage) PodChanged(types.UID) { s.changed.Wake() }

// Running implements storage.Pods. Critical pods are never evicted.
func (s *Storage) Running() (all []*corev1.Pod) {
	for _, o := range s.disk.o.Pods.Fleet.Holders() {
		if p := o.Pod.Pod; !o.Terminating && !pod.Critical(p, s.disk.o.Pods.StaticCritical) {
			all = append(all, p)
		}
	}
	return all
}

// Evict implements storage.Pods. An agent that is killed before the pod has ended measures it again.
func (s *Storage) Evict(p *corev1.Pod, e storage.Excess) bool {
	ended := s.disk.o.Pods.Stops.Evict(p, e.Message)
	if ended {
		s.disk.o.Metrics.Exceeded(e.Signal)
	}
	return ended
}

// Disk implements storage.Pods.
func (s *Storage) Disk() (used int64, err error) {
	paths := []string{s.disk.o.Dir}
	s.mu.Lock()
	if s.runs != nil && s.runs.own {
		paths = append(paths, s.runs.path)
	}
	s.mu.Unlock()
	for _, path := range paths {
		var st unix.Statfs_t
		if err := unix.Statfs(path, &st); err != nil {
			return 0, fmt.Errorf("read the use of the file system of %s: %w", path, err)
		}
		used += int64(st.Blocks-st.Bfree) * st.Bsize
	}
	return used, nil
}

// Measure implements storage.Pods. Running containers count, as under the kubelet.
func (s *Storage) Measure(ctx context.Context, p *corev1.Pod) (storage.Usage, error) {
	used := storage.Usage{EmptyDirs: map[string]storage.EmptyDir{}, Containers: map[string]int64{}}
	var errs []error
	measure := func(dir string, walk func(context.Context, string) (diskusage.Usage, error)) (int64, error) {
		u, err := walk(ctx, dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, diskusage.ErrTooDeep) {
			errs = append(errs, fmt.Errorf("measure %s: %w", dir, err))
		}
		used.Total += u.Bytes
		return u.Bytes, err
	}
	whole := storage.LimitsTotal(p)
	mounted := s.disk.o.Volumes.Mounted(p.UID)
	for _, v := range p.Spec.Volumes {
		if path := mounted[v.Name].Path; path != "" && pod.StoresLocally(v) && (whole || v.EmptyDir != nil) {
			bytes, err := measure(path, volumeOf(p).measure)
			if !errors.Is(err, diskusage.ErrTooDeep) {
				err = nil
			}
			used.EmptyDirs[v.Name] = storage.EmptyDir{Bytes: bytes, Err: err}
		}
	}
	if !whole {
		return used, errors.Join(errs...)
	}
	where, err := s.runtimeDisk(ctx)
	layers, layersErr := s.disk.readLayers(ctx, p)
	errs = append(errs, err, layersErr)
	for _, c := range s.running(p) {
		logs, _ := measure(filepath.Join(s.disk.o.Logs.LogDir(p), c.Name), diskusage.Measure)
		layer := layers[c.ID].Bytes
		used.Total += layer
		if where.own {
			layer = 0
		}
		used.Containers[c.Name] = logs + layer
	}
	return used, errors.Join(errs...)
}

// Counted implements storage.Pods.
func (s *Storage) Counted(p *corev1.Pod) (used storage.Usage, ok bool, err error) {
	used.EmptyDirs = map[string]storage.EmptyDir{}
	var errs []error
	mounted := s.disk.o.Volumes.Mounted(p.UID)
	for _, v := range p.Spec.Volumes {
		path := mounted[v.Name].Path
		if v.EmptyDir == nil || !pod.StoresLocally(v) {
			continue
		}
		if path == "" {
			ok = true // it may be counted when it is mounted
			continue
		}
		u, counted, err := quota.Measure(path)
		errs = append(errs, safepath.IgnoreMissing(err))
		if counted {
			ok = true
			used.EmptyDirs[v.Name] = storage.EmptyDir{Bytes: u.Bytes}
			used.Total += u.Bytes
		}
	}
	return used, ok, errors.Join(errs...)
}

// running returns the running containers of a pod.
func (s *Storage) running(p *corev1.Pod) []pod.ContainerStatus {
	return slices.DeleteFunc(slices.Clone(s.disk.o.Pods.Observed.Observed(p.UID).ContainersOf()),
		func(c pod.ContainerStatus) bool { return c.State != pod.StateRunning })
}

// runtimeDisk asks the runtime once where it keeps writable layers.
func (s *Storage) runtimeDisk(ctx context.Context) (runtimeDisk, error) {
	s.mu.Lock()
	known := s.runs
	s.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	var found runtimeDisk
	disks, err := s.disk.directories(ctx)
	if err == nil {
		layout, layoutErr := disks.Layout()
		found, err = runtimeDisk{disks.Container, layout.Container != layout.Node}, layoutErr
	}
	if err != nil {
		return found, fmt.Errorf("find the file system of writable layers: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = &found
	return found, nil
}
