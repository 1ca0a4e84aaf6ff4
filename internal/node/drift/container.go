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
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/event"
)

type runtime interface {
	ContainerStatus(context.Context, *runtimeapi.ContainerStatusRequest,
		...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error)
	UpdateContainerResources(context.Context, *runtimeapi.UpdateContainerResourcesRequest,
		...grpc.CallOption) (*runtimeapi.UpdateContainerResourcesResponse, error)
}

// ContainerOptions are what Containers need from their surroundings. All are
// required.
type ContainerOptions struct {
	Watch   *Watch
	Runtime runtime
	// Observed are the pods as the runtime shows them, Pod those of the node.
	Observed *store.Table[types.UID, *pod.Observed]
	Pod      func(types.UID) (*corev1.Pod, bool)
	// Group finds a container's cgroup.
	Group func(p *corev1.Pod, id string) (cgroupfile.Group, bool)
	// Place is where a container runs, "" for where it likes.
	Place func(p *corev1.Pod, container string) (cpus, mems string)
}

// Containers has the cgroups of running containers looked after. What they should
// say is the runtime's word, which a hook or a resize may have had a part in; but
// for CPUs and NUMA nodes it is the ledger's.
type Containers struct {
	opts ContainerOptions

	mu       sync.Mutex
	told     map[string]cgroupfile.Bounds // the runtime's word by id, once it was asked for
	swap     map[string]int64             // bytes of memory and swap together, the same
	of       map[types.UID]map[string]bool
	repaired map[*container][]cgroupfile.Change // what systemd does not know yet
	wake     chan struct{}                      // there is some of it
}

// NewContainers makes Containers that look after none.
func NewContainers(o ContainerOptions) *Containers {
	return &Containers{
		opts: o, told: map[string]cgroupfile.Bounds{}, swap: map[string]int64{}, of: map[types.UID]map[string]bool{},
		repaired: map[*container][]cgroupfile.Change{}, wake: make(chan struct{}, 1),
	}
}

// Run follows the observed pods until ctx ends.
func (s *Containers) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.follow(ctx) })
	group.Go(func() error { return s.tellAll(ctx) })
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
	p, known := s.opts.Pod(uid)
	for _, c := range o.ContainersOf() {
		if gone || !known || c.State != pod.StateRunning {
			continue
		}
		if s.opts.Watch.Watched(key(c.ID)) {
			running[c.ID] = true
		} else if group, ok := s.opts.Group(p, c.ID); ok {
			running[c.ID] = true
			s.opts.Watch.Watch(key(c.ID), s.subject(p, c, group))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.of[uid] {
		if !running[id] {
			s.opts.Watch.Unwatch(key(id))
			delete(s.told, id)
			delete(s.swap, id)
		}
	}
	if s.of[uid] = running; len(running) == 0 {
		delete(s.of, uid)
	}
}

func key(id string) string { return "container/" + id }

// Hold is for a change of a container by somebody who may make it.
func (s *Containers) Hold(id string) (release func()) {
	end := s.opts.Watch.Hold(key(id))
	return func() {
		s.mu.Lock()
		delete(s.told, id) // the runtime's word is another now
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

// container is one that is looked after.
type container struct {
	s        *Containers
	pod      *corev1.Pod
	id, name string
	group    cgroupfile.Group
}

// answerTime is how long a runtime may take that is asked again.
const answerTime = 300 * time.Millisecond

// differs compares with what the runtime has said before, and asks it again
// before it finds anything. What it has said counts if it does not answer.
func (x *container) differs(ctx context.Context) ([]cgroupfile.Change, error) {
	x.s.mu.Lock()
	told, ok := x.s.told[x.id]
	x.s.mu.Unlock()
	if !ok {
		want, err := x.ask(ctx)
		if err != nil {
			return nil, err
		}
		return x.compare(want)
	}
	found, err := x.compare(told)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	want, err := x.ask(ctx)
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

// placed are the bounds with the CPUs and nodes of the ledger.
func (x *container) placed(b cgroupfile.Bounds) cgroupfile.Bounds {
	cpus, mems := x.s.opts.Place(x.pod, x.name)
	if cpus != "" {
		b.CPUs = cpus
	}
	if mems != "" {
		b.Mems = mems
	}
	return b
}

// ask has the runtime say what the container is to have. One that does not say
// is looked after for its CPUs and nodes only.
func (x *container) ask(ctx context.Context) (cgroupfile.Bounds, error) {
	r, err := x.s.opts.Runtime.ContainerStatus(ctx,
		&runtimeapi.ContainerStatusRequest{ContainerId: x.id, Verbose: true})
	if err != nil {
		return cgroupfile.Bounds{}, fmt.Errorf("ask the runtime for a container's resources: %w", err)
	}
	var b cgroupfile.Bounds
	var swap int64
	if spec := specResources(r.GetInfo()["info"]); spec != nil {
		b, swap = boundsOf(spec)
	}
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	x.s.told[x.id], x.s.swap[x.id] = b, swap
	return b, nil
}

// specResources finds the resources in what containerd and CRI-O tell of a container.
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

// boundsOf are the bounds of a container's specification. One that is not in it is
// no bound, but for the CPUs and nodes, which the kernel fills in.
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

// repair writes what was found: no runtime that hangs keeps anybody from what is theirs. Where
// the cgroup is a unit of systemd's it is told too, through the runtime.
func (x *container) repair(_ context.Context, found []cgroupfile.Change) error {
	x.s.mu.Lock()
	swap := x.s.swap[x.id]
	x.s.mu.Unlock()
	var errs []error
	for _, c := range found {
		err := cgroupfile.Write(x.group, c.File, c.Want)
		if err != nil && c.File == "memory.limit_in_bytes" {
			// It cannot exceed that of memory and swap, which was lowered too.
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
		x.s.toTell(x, found)
	}
	return errors.Join(errs...)
}

// toTell has the runtime told later of what was repaired. Nobody waits for that.
func (s *Containers) toTell(x *container, found []cgroupfile.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.repaired[x] = append(s.repaired[x], found...)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Containers) tellAll(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		}
		s.mu.Lock()
		repaired := s.repaired
		s.repaired = map[*container][]cgroupfile.Change{}
		s.mu.Unlock()
		for x, found := range repaired {
			if err := x.tell(ctx, found); err != nil && ctx.Err() == nil {
				s.opts.Watch.opts.Log.Warn("tell the runtime of a repaired cgroup", "pod", x.pod.Name, "container",
					x.name, "err", err)
			}
		}
	}
}

// tell has the runtime set what was repaired as it is to be by now.
func (x *container) tell(ctx context.Context, found []cgroupfile.Change) error {
	x.s.mu.Lock()
	told, ok := x.s.told[x.id]
	swap := x.s.swap[x.id]
	x.s.mu.Unlock()
	if !ok {
		return nil // it has ended, or was changed through the runtime since
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := x.s.opts.Runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: x.id, Linux: updateFor(x.placed(told), swap, x.group.Unified, found),
	})
	return err
}

// isUnit says whether systemd has made a container's cgroup: its driver names it so.
func isUnit(g cgroupfile.Group) bool {
	for _, dir := range g.Dirs {
		return strings.HasSuffix(dir, ".scope")
	}
	return false
}

// updateFor sets those bounds that have changed.
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
			if !unified { // it bounds the other one: both go together
				r.MemorySwapLimitInBytes = cmp.Or(swap, b.Memory)
			}
		}
	}
	return r
}
