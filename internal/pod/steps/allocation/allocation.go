package allocation

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/base/cpulist"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node"
	"github.com/berth-run/berth/internal/node/machine"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/memory"
	"github.com/berth-run/berth/internal/node/resource/topology"
	"github.com/berth-run/berth/internal/pod/worker"
	"github.com/berth-run/berth/internal/record/event"
)

// ReadNode reads the machine and combines it with the configuration. If the machine cannot be read, that is an error
// only if the configuration pins CPUs or memory.
func ReadNode(root fs.FS, c config.Node, facts node.Facts, log *slog.Logger) (resource.Node, error) {
	m, err := machine.Read(root)
	if err != nil {
		if c.Pinning.CPUs || c.Pinning.Memory {
			return resource.Node{}, fmt.Errorf("read the machine's CPUs and memory: %w", err)
		}
		log.Warn("read the machine's CPUs and memory failed, assuming one NUMA node", "err", err)
		m.Nodes = []machine.Node{{ID: 0}}
	}
	return NodeOf(c, m, facts)
}

// Options are the dependencies of Allocations. All are required.
type Options struct {
	// Node is the machine and its configured policy, without devices.
	Node resource.Node
	// Dir is the directory of the ledger. Root is the directory where a kubelet stores its state.
	Dir, Root string
	// Ledger records what each pod holds. Several parts share it.
	Ledger *resource.Ledger
	// Devices are the devices that plugins offer.
	Devices devices
	// Desired holds the pods that should run here. Observed holds the running parts of each pod. From these two and the
	// cgroups of containers, allocations are restored that the ledger lost.
	Desired  *store.Table[types.UID, *pod.Pod]
	Observed *store.Table[types.UID, *pod.Observed]
	// Synced are closed when both have held everything once.
	Synced  []<-chan struct{}
	Cgroups cgroups
	Pods    pods
	Events  event.Sink
	Log     *slog.Logger
}

type devices interface {
	// Inventory returns the devices that plugins offer now.
	Inventory() device.Inventory
}

type cgroups interface {
	// Pinned returns the CPUs and NUMA nodes that the kernel has set for a container.
	Pinned(p *corev1.Pod, id string) (cpus, mems string, ok bool)
}

// pods are the pods of this node.
type pods interface {
	// Known reports whether a pod is desired or being ended.
	Known(types.UID) bool
	// Working reports whether this agent has admitted a pod that is not removed yet.
	Working(types.UID) bool
}

// AllocationChanged is the reason of the event for a pod that cannot keep its allocation because the machine or the
// configuration has changed.
const AllocationChanged = "AllocationChanged"

// Allocations books and frees the resources that pods hold. Its methods may be called from any goroutine, except that
// Allot and Book belong to the goroutine of admission.
type Allocations struct {
	*resource.Ledger
	opts    Options
	settled chan struct{}
	changed <-chan struct{}
	metrics metrics

	// restoring is held while Restore runs.
	restoring sync.Mutex
	// restored are the pods whose running containers Restore has read. The value is true if the pod was desired then.
	restored map[types.UID]bool

	mu       sync.Mutex
	lost     map[types.UID]error // why pods cannot keep their resources
	reserved resource.Held       // reserved for pods that wait until others have ended
}

// New returns Allocations. Call Load before its other methods.
func New(o Options) *Allocations {
	return &Allocations{
		opts: o, settled: make(chan struct{}), changed: o.Ledger.Subscribe(), metrics: newMetrics(),
		lost: map[types.UID]error{}, reserved: resource.Held{},
		Ledger: o.Ledger,
	}
}

// Node returns the machine with the devices that plugins offer now.
func (s *Allocations) Node() resource.Node {
	n := s.opts.Node
	n.Devices = s.opts.Devices.Inventory()
	return n
}

// Machine returns the machine.
func (s *Allocations) Machine() machine.Machine { return s.opts.Node.Machine }

// Allot computes the resources that a pod would get beside these pods. It books nothing.
func (s *Allocations) Allot(p *corev1.Pod, beside []types.UID) (resource.Allocation, error) {
	return resource.Decide(s.Node(), s.held(p.UID, beside), p)
}

// Reserve holds the resources that a pod will get once other pods have ended, beside the pods that stay. Later calls of
// Allot and Book for other pods count it as held until Book, Free or Drop is called for the pod.
func (s *Allocations) Reserve(p *corev1.Pod, staying []types.UID) {
	a, err := s.Allot(p, staying)
	if err != nil || a.IsEmpty() {
		s.Drop(p.UID)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved[p.UID] = a
}

// Drop removes a reservation of Reserve.
func (s *Allocations) Drop(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.reserved, uid)
}

// Restore reads the allocation of each running pod from the kernel, once a pod. It must run before admission allots
// anything beside these pods, and after the observed table is complete.
func (s *Allocations) Restore() {
	if p := s.opts.Node.Policy; !p.CPUs && !p.Memory {
		return
	}
	s.restoring.Lock()
	defer s.restoring.Unlock()
	live, restored := resource.Held{}, map[types.UID]bool{}
	observed := s.opts.Observed.Snapshot()
	for uid, p := range s.opts.Desired.Snapshot().All() {
		restored[uid] = true
		if !s.restored[uid] {
			o, _ := observed.Get(uid)
			live[uid] = s.opts.Node.Infer(p.Pod, s.live(p.Pod, o))
		}
	}
	for uid, o := range observed.All() {
		if _, wanted := restored[uid]; wanted {
			continue
		}
		before, known := s.restored[uid]
		restored[uid] = before
		if _, holds := s.Get(uid); !known && !holds {
			live[uid] = s.opts.Node.InferUnknown(s.live(guaranteed(uid), o))
		}
	}
	s.restored = restored
	if _, err := s.Rebuild(live); err != nil {
		s.opts.Log.Error("book the allocations of running pods failed; other pods may get the same resources", "err",
			err)
	}
}

// Rebuild books the allocations that were found for running pods. A pod that cannot keep all of its allocation gets an
// event when it is admitted.
func (s *Allocations) Rebuild(live map[types.UID]resource.Allocation) ([]resource.Lost, error) {
	lost, err := s.Ledger.Rebuild(live)
	s.lose(lost)
	return lost, err
}

func (s *Allocations) lose(lost []resource.Lost) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range lost {
		s.lost[x.UID] = x.Why
	}
}

// takeLost returns why a pod cannot keep all that it held, and forgets it.
func (s *Allocations) takeLost(uid types.UID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	why := s.lost[uid]
	delete(s.lost, uid)
	return why
}

// live returns where the running containers of a pod may run, for those whose cgroup is known.
func (s *Allocations) live(p *corev1.Pod, o *pod.Observed) map[string]resource.Place {
	places := map[string]resource.Place{}
	for _, c := range o.ContainersOf() {
		cpus, mems, ok := s.opts.Cgroups.Pinned(p, c.ID)
		if !ok || c.State != pod.StateRunning {
			continue
		}
		at := resource.Place{}
		at.CPUs, _ = cpulist.Set(cpus)
		if nodes, err := cpulist.Set(mems); err == nil {
			at.Nodes = topology.Of(nodes.List()...)
		}
		places[c.Name] = at
	}
	return places
}

// Fixed returns why the resources of a running pod cannot change, "" if they can.
func (s *Allocations) Fixed(was, want *corev1.Pod) string {
	return s.opts.Node.ResizeConflict(was, want)
}

// Book allots resources to a pod and books them, on disk first.
func (s *Allocations) Book(p *corev1.Pod, beside []types.UID) error {
	_, held := s.Get(p.UID)
	began := time.Now()
	a, err := s.Allot(p, beside)
	took := time.Since(began)
	if err == nil {
		err = s.Commit(p.UID, a)
	}
	if err != nil {
		return err
	}
	if !held {
		s.metrics.booked(s.opts.Node, p, a, took)
	}
	s.Drop(p.UID)
	if why := s.takeLost(p.UID); why != nil {
		s.opts.Events.Event(event.PodRef(p), corev1.EventTypeWarning, AllocationChanged,
			"The pod cannot keep all resources that it held exclusively: %v", why)
	}
	return nil
}

// held returns the allocations that count when a pod is admitted: of the pod itself and of the pods in beside, with
// their reservations. It also counts pods that a previous agent admitted and this agent has not handled yet, even if
// they still run but are no longer desired.
func (s *Allocations) held(uid types.UID, beside []types.UID) resource.Held {
	held := s.All()
	for other := range held {
		if other == uid || slices.Contains(beside, other) {
			continue
		}
		if o, _ := s.opts.Observed.Get(other); s.opts.Pods.Working(other) || !s.opts.Pods.Known(other) && !o.Running() {
			delete(held, other)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, a := range s.reserved {
		if _, holds := held[other]; !holds && other != uid && slices.Contains(beside, other) {
			held[other] = a
		}
	}
	return held
}

// Forget releases the resources that a pod holds.
func (s *Allocations) Forget(uid types.UID) {
	_ = s.takeLost(uid) // the pod gets no event any more
	s.Drop(uid)
	if err := s.Release(uid); err != nil {
		s.opts.Log.Error("free the allocation of a pod failed; it stays booked until the agent restarts", "pod", uid,
			"err", err)
	}
}

// Retain frees the allocations of pods that disappeared while no agent ran.
func (s *Allocations) Retain() {
	for uid := range s.All() {
		if !s.opts.Pods.Known(uid) {
			s.Forget(uid)
		}
	}
}

// Step has only a teardown, which frees the pod's resources once nothing of it runs. Admission allocated it.
func (s *Allocations) Step() worker.Step {
	return worker.Step{
		Name: "allocation", Phase: worker.Prepare,
		Teardown: func(_ context.Context, run *worker.Run) error { s.Forget(run.Pod.UID); return nil },
	}
}

// CPUs returns the CPUs that can be allocated exclusively, none without the static policy.
func (s *Allocations) CPUs() cpuset.CPUSet {
	if !s.opts.Node.Policy.CPUs {
		return cpuset.New()
	}
	return s.opts.Node.Machine.Online().Difference(s.opts.Node.Policy.ReservedCPUs)
}

// Memory returns the memory of each NUMA node that can be allocated, nil without the static policy.
func (s *Allocations) Memory() []memory.Block {
	if !s.opts.Node.Policy.Memory {
		return nil
	}
	return memory.NewState(s.opts.Node.Machine, s.opts.Node.Policy.ReservedMemory).Allocatable()
}

// guaranteed returns a stand-in for a running pod whose spec is unknown. Only Guaranteed pods hold exclusive CPUs.
func guaranteed(uid types.UID) *corev1.Pod {
	some := corev1.ResourceList{corev1.ResourceCPU: resourceapi.MustParse("1"),
		corev1.ResourceMemory: resourceapi.MustParse("1")}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: some, Limits: some}}},
	}}
}
