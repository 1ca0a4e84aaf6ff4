package drift

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/event"
)

type runtime interface {
	ContainerStatus(context.Context, *runtimeapi.ContainerStatusRequest,
		...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error)
	UpdateContainerResources(context.Context, *runtimeapi.UpdateContainerResourcesRequest,
		...grpc.CallOption) (*runtimeapi.UpdateContainerResourcesResponse, error)
}

// ContainerOptions configure Containers. All fields are required.
type ContainerOptions struct {
	Watch   *Watch
	Runtime runtime
	// Observed are the pods as the runtime reports them.
	Observed *store.Table[types.UID, *pod.Observed]
	Pods     pods
	Cgroups  cgroups
	Places   places
}

// pods are the pods of this node.
type pods interface {
	Pod(types.UID) (*corev1.Pod, bool)
}

// cgroups are the cgroups of running containers.
type cgroups interface {
	// Find returns false for a container whose cgroup is unknown.
	Find(p *corev1.Pod, id string) (cgroupfile.Group, bool)
}

// places are the CPUs and NUMA nodes allocated to containers.
type places interface {
	// Place returns "" for CPUs or NUMA nodes that are not restricted.
	Place(p *corev1.Pod, container string) (cpus, mems string)
}

// Containers registers the cgroups of running containers with a Watch. The wanted values come from the runtime, because
// a hook or a resize may have set them. Only CPUs and NUMA nodes come from the ledger.
type Containers struct {
	opts ContainerOptions

	mu       sync.Mutex
	bounds   map[string]cgroupfile.Bounds // by container ID, once fetched from the runtime
	swap     map[string]int64             // limit of memory and swap together in bytes, by container ID
	ids      map[types.UID]map[string]bool
	repaired map[*container][]cgroupfile.Change // repairs that the runtime, and with it systemd, does not know yet
	wake     wake.Signal                        // raised when repaired is not empty
}

// NewContainers returns Containers without any container.
func NewContainers(o ContainerOptions) *Containers {
	return &Containers{
		opts: o, bounds: map[string]cgroupfile.Bounds{}, swap: map[string]int64{}, ids: map[types.UID]map[string]bool{},
		repaired: map[*container][]cgroupfile.Change{}, wake: wake.New(),
	}
}

// Run follows the observed pods until ctx ends.
func (s *Containers) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.follow(ctx) })
	group.Go(func() error { return s.updateRuntime(ctx) })
	return group.Wait()
}

func (s *Containers) follow(ctx context.Context) error {
	w := s.opts.Observed.Watch()
	defer w.Stop()
	for {
		changes, err := w.Next(ctx)
		if err != nil {
			return nil
		}
		for _, c := range changes {
			s.observe(c.Key, c.Value, c.Deleted)
		}
	}
}

func (s *Containers) observe(uid types.UID, o *pod.Observed, gone bool) {
	running := map[string]bool{}
	p, known := s.opts.Pods.Pod(uid)
	for _, c := range o.ContainersOf() {
		if gone || !known || c.State != pod.StateRunning {
			continue
		}
		if s.opts.Watch.Watched(key(c.ID)) {
			running[c.ID] = true
		} else if group, ok := s.opts.Cgroups.Find(p, c.ID); ok {
			running[c.ID] = true
			s.opts.Watch.Watch(key(c.ID), s.subject(p, c, group))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.ids[uid] {
		if !running[id] {
			s.opts.Watch.Unwatch(key(id))
			delete(s.bounds, id)
			delete(s.swap, id)
		}
	}
	if s.ids[uid] = running; len(running) == 0 {
		delete(s.ids, uid)
	}
}

func key(id string) string { return "container/" + id }

// Hold suspends repairs during a legitimate change of a container, until release is called.
func (s *Containers) Hold(id string) (release func()) {
	end := s.opts.Watch.Hold(key(id))
	return func() {
		s.mu.Lock()
		delete(s.bounds, id) // the runtime has new bounds now
		s.mu.Unlock()
		end()
	}
}

func (s *Containers) subject(p *corev1.Pod, c pod.ContainerStatus, group cgroupfile.Group) cgroupfile.Subject {
	ref := event.PodRef(p)
	if k, ok := pod.FindContainer(p, c.Name); ok {
		ref = event.ContainerRef(p, k)
	}
	x := &container{s: s, pod: p, id: c.ID, name: c.Name, group: group}
	return cgroupfile.Subject{Level: "container", Group: group, Ref: ref, Differs: x.differs, Repair: x.repair}
}

// container is the subject for one container.
type container struct {
	s        *Containers
	pod      *corev1.Pod
	id, name string
	group    cgroupfile.Group
}

// fetchTimeout limits a repeated request to the runtime.
const fetchTimeout = 300 * time.Millisecond

// differs compares the cgroup with the cached bounds of the runtime. Before it reports a difference it fetches the
// bounds again. If the runtime does not answer, the cached bounds count.
func (x *container) differs(ctx context.Context) ([]cgroupfile.Change, error) {
	x.s.mu.Lock()
	bounds, ok := x.s.bounds[x.id]
	x.s.mu.Unlock()
	if !ok {
		want, err := x.fetch(ctx)
		if err != nil {
			return nil, err
		}
		return x.compare(want)
	}
	found, err := x.compare(bounds)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	want, err := x.fetch(ctx)
	if err != nil {
		return found, nil
	}
	return x.compare(want)
}

func (x *container) compare(b cgroupfile.Bounds) ([]cgroupfile.Change, error) {
	want := x.placed(b).Values(x.group.Unified)
	have, err := cgroupfile.Read(x.group, want)
	if err != nil {
		return nil, err
	}
	return cgroupfile.Differences(want, have), nil
}

// placed returns the bounds with the CPUs and NUMA nodes of the ledger.
func (x *container) placed(b cgroupfile.Bounds) cgroupfile.Bounds {
	cpus, mems := x.s.opts.Places.Place(x.pod, x.name)
	if cpus != "" {
		b.CPUs = cpus
	}
	if mems != "" {
		b.Mems = mems
	}
	return b
}

// fetch gets the container's bounds from the runtime and caches them. For a runtime that does not report any, only CPUs
// and NUMA nodes are compared.
func (x *container) fetch(ctx context.Context) (cgroupfile.Bounds, error) {
	r, err := x.s.opts.Runtime.ContainerStatus(ctx,
		&runtimeapi.ContainerStatusRequest{ContainerId: x.id, Verbose: true})
	if err != nil {
		return cgroupfile.Bounds{}, fmt.Errorf("read the container's resources from the runtime: %w", err)
	}
	var b cgroupfile.Bounds
	var swap int64
	if spec := specResources(r.GetInfo()["info"]); spec != nil {
		b, swap = boundsOf(spec)
	}
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	x.s.bounds[x.id], x.s.swap[x.id] = b, swap
	return b, nil
}

// specResources finds the resources in the verbose status of containerd and CRI-O.
func specResources(info string) *specs.LinuxResources {
	var v struct {
		RuntimeSpec struct {
			Linux struct {
				Resources *specs.LinuxResources `json:"resources"`
			} `json:"linux"`
		} `json:"runtimeSpec"`
	}
	if json.Unmarshal([]byte(info), &v) != nil {
		return nil
	}
	return v.RuntimeSpec.Linux.Resources
}

// boundsOf converts the resources of a container's specification. A missing value is unlimited, except CPUs and NUMA
// nodes: the kernel chooses those.
func boundsOf(r *specs.LinuxResources) (b cgroupfile.Bounds, swap int64) {
	b.Quota, b.Memory = -1, -1
	if c := r.CPU; c != nil {
		b.CPUs, b.Mems = c.Cpus, c.Mems
		if c.Shares != nil {
			b.Shares = *c.Shares
		}
		if c.Quota != nil && *c.Quota > 0 {
			b.Quota = *c.Quota
		}
		if c.Period != nil {
			b.Period = *c.Period
		}
	}
	if m := r.Memory; m != nil {
		if m.Limit != nil && *m.Limit > 0 {
			b.Memory = *m.Limit
		}
		if m.Swap != nil {
			swap = *m.Swap
		}
	}
	for file, bound := range map[string]*int64{"memory.high": &b.High, "memory.min": &b.Min, "memory.low": &b.Low} {
		if n, err := strconv.ParseInt(r.Unified[file], 10, 64); err == nil {
			*bound = n
		}
	}
	return b, swap
}

// repair writes the wanted values to the files, so that it does not depend on a runtime that may hang. If the cgroup is
// a systemd unit, it also queues an update through the runtime, because systemd must know the values.
func (x *container) repair(_ context.Context, found []cgroupfile.Change) error {
	x.s.mu.Lock()
	swap := x.s.swap[x.id]
	x.s.mu.Unlock()
	var errs []error
	for _, c := range found {
		err := cgroupfile.Write(x.group, c.File, c.Want)
		if err != nil && c.File == "memory.limit_in_bytes" {
			// The memory limit cannot exceed the limit of memory and swap, which was lowered too.
			both := c.Want
			if swap > 0 {
				both = strconv.FormatInt(swap, 10)
			}
			if cgroupfile.Write(x.group, "memory.memsw.limit_in_bytes", both) == nil {
				err = cgroupfile.Write(x.group, c.File, c.Want)
			}
		}
		errs = append(errs, err)
	}
	if isUnit(x.group) {
		x.s.queueUpdate(x, found)
	}
	return errors.Join(errs...)
}

// queueUpdate queues an update of the runtime after a repair and returns at once.
func (s *Containers) queueUpdate(x *container, found []cgroupfile.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.repaired[x] = append(s.repaired[x], found...)
	s.wake.Wake()
}

func (s *Containers) updateRuntime(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake.C():
		}
		s.mu.Lock()
		repaired := s.repaired
		s.repaired = map[*container][]cgroupfile.Change{}
		s.mu.Unlock()
		for x, found := range repaired {
			if err := x.update(ctx, found); err != nil && ctx.Err() == nil {
				s.opts.Watch.opts.Log.Warn("cannot update the runtime after a cgroup repair", "pod", x.pod.Name,
					"container",
					x.name, "err", err)
			}
		}
	}
}

// update sets the repaired values in the runtime, as they are wanted by now.
func (x *container) update(ctx context.Context, found []cgroupfile.Change) error {
	x.s.mu.Lock()
	bounds, ok := x.s.bounds[x.id]
	swap := x.s.swap[x.id]
	x.s.mu.Unlock()
	if !ok {
		return nil // the container has ended, or the runtime has changed it since
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	_, err := x.s.opts.Runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: x.id, Linux: updateFor(x.placed(bounds), swap, x.group.Unified, found),
	})
	return err
}

// isUnit reports whether systemd created the container's cgroup, judging by its name.
func isUnit(g cgroupfile.Group) bool {
	for _, dir := range g.Dirs {
		return strings.HasSuffix(dir, ".scope")
	}
	return false
}

// updateFor returns an update with the values that were repaired.
func updateFor(b cgroupfile.Bounds, swap int64, unified bool,
	found []cgroupfile.Change) *runtimeapi.LinuxContainerResources {
	r := &runtimeapi.LinuxContainerResources{}
	for _, c := range found {
		switch c.File {
		case "cpuset.cpus":
			r.CpusetCpus = b.CPUs
		case "cpuset.mems":
			r.CpusetMems = b.Mems
		case "cpu.shares", "cpu.weight":
			r.CpuShares = int64(b.Shares)
		case "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.max":
			r.CpuQuota, r.CpuPeriod = b.Quota, int64(b.Period)
		case "memory.limit_in_bytes", "memory.max":
			r.MemoryLimitInBytes = b.Memory
			if !unified { // memory and swap together limit memory: set both
				r.MemorySwapLimitInBytes = cmp.Or(swap, b.Memory)
			}
		}
	}
	return r
}
