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

// ReadNode looks at the machine and at what the configuration asks of it. A machine
// that tells nothing of itself is an error only if something is to be pinned.
func ReadNode(root fs.FS, c config.Node, facts node.Facts, log *slog.Logger) (resource.Node, error) {
	m, err := machine.Read(root)
	if err != nil {
		if c.Pinning.CPUs || c.Pinning.Memory {
			return resource.Node{}, fmt.Errorf("look at the machine's CPUs and memory: %w", err)
		}
		log.Warn("look at the machine's CPUs and memory", "err", err)
		m.Nodes = []machine.Node{{ID: 0}}
	}
	return NodeOf(c, m, facts)
}

// Options are what Allocations needs from its surroundings. All are required.
type Options struct {
	// Node is the machine and what the configuration says, without devices.
	Node resource.Node
	// Dir is where the ledger is kept, Root where a kubelet had its state.
	Dir, Root string
	// Devices are what plugins offer at the moment.
	Devices func() device.Inventory
	// Desired are the pods that are to run here, Observed is what runs of one, and
	// Pinned the CPUs and NUMA nodes that the kernel has for a container. From these
	// is known what pods hold of which the ledger knows nothing, because it was lost
	// or damaged.
	Desired  *store.Table[types.UID, *pod.Pod]
	Observed *store.Table[types.UID, *pod.Observed]
	// Synced are closed when both have held everything once.
	Synced []<-chan struct{}
	Pinned func(p *corev1.Pod, id string) (cpus, mems string, ok bool)
	// Known says that somebody wants a pod, or that it is being ended. Working
	// says that it was admitted by this agent and has not been removed.
	Known, Working func(types.UID) bool
	Events         interface {
		Event(ref corev1.ObjectReference, eventType, reason, format string, args ...any)
	}
	Log *slog.Logger
}

// AllocationChanged is the reason of the event of a pod that an earlier agent had
// given what this one's machine or configuration does not have.
const AllocationChanged = "AllocationChanged"

// Allocations gives and takes. Its methods may be called from any goroutine, but
// Allot and Book from that of admission only.
type Allocations struct {
	*resource.Ledger
	opts    Options
	settled chan struct{}
	changed <-chan struct{}
	metrics metrics

	looking sync.Mutex
	looked  map[types.UID]bool // pods of which it was looked at what runs; true: knowing what they are due

	mu   sync.Mutex
	lost map[types.UID]error // why pods cannot keep what they held
	kept resource.Held       // what is meant for pods that others end for
}

// New makes Allocations with an empty ledger; see Load.
func New(o Options) *Allocations {
	ledger := resource.NewLedger(resource.LedgerOptions{Dir: o.Dir, Node: o.Node, Log: o.Log})
	return &Allocations{
		opts: o, settled: make(chan struct{}), changed: ledger.Subscribe(), metrics: newMetrics(),
		lost: map[types.UID]error{}, kept: resource.Held{},
		Ledger: ledger,
	}
}

// Node is the machine with what device plugins offer at the moment.
func (s *Allocations) Node() resource.Node {
	n := s.opts.Node
	n.Devices = s.opts.Devices()
	return n
}

// Machine is what the node is built of.
func (s *Allocations) Machine() machine.Machine { return s.opts.Node.Machine }

// Nodes are the machine's NUMA nodes.
func (s *Allocations) Nodes() (all topology.Nodes) {
	for _, n := range s.opts.Node.Machine.Nodes {
		all |= topology.Of(n.ID)
	}
	return all
}

// Allot decides what a pod would be given beside these pods, and books nothing.
func (s *Allocations) Allot(p *corev1.Pod, beside []types.UID) (resource.Allocation, error) {
	return resource.Decide(s.Node(), s.held(p.UID, beside), p)
}

// Keep has what a pod is to be given when others have ended, beside those that
// stay, count as held for the pods that are asked about after it, until Book, Free
// or Drop.
func (s *Allocations) Keep(p *corev1.Pod, staying []types.UID) {
	a, err := s.Allot(p, staying)
	if err != nil || a.IsEmpty() {
		s.Drop(p.UID)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept[p.UID] = a
}

// Drop ends that.
func (s *Allocations) Drop(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.kept, uid)
}

// Look looks at what runs of each pod, once: before admission decides anything that
// is to be beside it. What is observed is complete by then.
func (s *Allocations) Look() {
	if p := s.opts.Node.Policy; !p.CPUs && !p.Memory {
		return
	}
	s.looking.Lock()
	defer s.looking.Unlock()
	live, looked := resource.Held{}, map[types.UID]bool{}
	observed := s.opts.Observed.Snapshot()
	for uid, p := range s.opts.Desired.Snapshot().All() {
		looked[uid] = true
		if !s.looked[uid] {
			o, _ := observed.Get(uid)
			live[uid] = s.opts.Node.Infer(p.Pod, s.live(p.Pod, o))
		}
	}
	for uid, o := range observed.All() {
		if _, wanted := looked[uid]; wanted {
			continue
		}
		before, known := s.looked[uid]
		looked[uid] = before
		if _, holds := s.Get(uid); !known && !holds {
			live[uid] = s.opts.Node.InferUnknown(s.live(guaranteed(uid), o))
		}
	}
	s.looked = looked
	if _, err := s.Rebuild(live); err != nil {
		s.opts.Log.Error("book what running pods were found to hold", "err", err)
	}
}

// Rebuild takes over what running pods were found to have. The pods that cannot
// keep all of it are told when they are admitted.
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

// told is why a pod cannot keep all that it held, once.
func (s *Allocations) told(uid types.UID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	why := s.lost[uid]
	delete(s.lost, uid)
	return why
}

// live says where the containers of a pod run, as far as that can be told.
func (s *Allocations) live(p *corev1.Pod, o *pod.Observed) map[string]resource.Place {
	places := map[string]resource.Place{}
	for _, c := range o.ContainersOf() {
		cpus, mems, ok := s.opts.Pinned(p, c.ID)
		if !ok || c.State != pod.StateRunning {
			continue
		}
		at := resource.Place{}
		at.CPUs, _ = cpuset.Parse(cpus)
		if nodes, err := cpuset.Parse(mems); err == nil {
			at.Nodes = topology.Of(nodes.List()...)
		}
		places[c.Name] = at
	}
	return places
}

// Fixed says why a running pod cannot have other resources; "" when it can.
func (s *Allocations) Fixed(was, want *corev1.Pod) string {
	return s.opts.Node.ResizeConflict(was, want)
}

// Book gives it, on disk first.
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
	if why := s.told(p.UID); why != nil {
		s.opts.Events.Event(event.PodRef(p), corev1.EventTypeWarning, AllocationChanged,
			"The pod cannot keep all that it held for itself: %v", why)
	}
	return nil
}

// held is what counts beside a pod: what it holds itself, what these do or are to, and what
// is kept for those that an earlier agent had admitted and this one has not come
// to yet, also if nobody wants them any more and they still run.
func (s *Allocations) held(uid types.UID, beside []types.UID) resource.Held {
	held := s.All()
	for other := range held {
		if other == uid || slices.Contains(beside, other) {
			continue
		}
		if o, _ := s.opts.Observed.Get(other); s.opts.Working(other) || !s.opts.Known(other) && !o.Running() {
			delete(held, other)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, a := range s.kept {
		if _, holds := held[other]; !holds && other != uid && slices.Contains(beside, other) {
			held[other] = a
		}
	}
	return held
}

// Free takes back what a pod holds.
func (s *Allocations) Free(uid types.UID) {
	_ = s.told(uid) // it is no matter any more
	s.Drop(uid)
	if err := s.Release(uid); err != nil {
		s.opts.Log.Error("free what a pod held", "pod", uid, "err", err)
	}
}

// Retain frees what pods held that went while no agent ran.
func (s *Allocations) Retain() {
	for uid := range s.All() {
		if !s.opts.Known(uid) {
			s.Free(uid)
		}
	}
}

// Step is torn down when nothing of the pod runs, and frees what it holds. That was
// given at admission.
func (s *Allocations) Step() worker.Step {
	return worker.Step{
		Name: "allocation", Phase: worker.Prepare,
		Teardown: func(_ context.Context, run *worker.Run) error { s.Free(run.Pod.UID); return nil },
	}
}

// CPUs are those that can be given away; none while the policy gives none.
func (s *Allocations) CPUs() cpuset.CPUSet {
	if !s.opts.Node.Policy.CPUs {
		return cpuset.New()
	}
	return s.opts.Node.Machine.Online().Difference(s.opts.Node.Policy.ReservedCPUs)
}

// Memory is what can be given away of each NUMA node; nil while the policy gives
// none.
func (s *Allocations) Memory() []memory.Block {
	if !s.opts.Node.Policy.Memory {
		return nil
	}
	return memory.NewState(s.opts.Node.Machine, s.opts.Node.Policy.ReservedMemory).Allocatable()
}

// guaranteed stands for a running pod of which only the id is known: others than
// Guaranteed ones have no CPUs of their own.
func guaranteed(uid types.UID) *corev1.Pod {
	some := corev1.ResourceList{corev1.ResourceCPU: resourceapi.MustParse("1"),
		corev1.ResourceMemory: resourceapi.MustParse("1")}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: some, Limits: some}}},
	}}
}
