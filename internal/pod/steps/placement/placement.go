package placement

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/resource"
)

// ledger is what pods hold.
type ledger interface {
	Get(types.UID) (resource.Allocation, bool)
	// Shared are the CPUs of containers without their own; empty while none are
	// given away.
	Shared() cpuset.CPUSet
}

type runtime interface {
	UpdateContainerResources(context.Context, *runtimeapi.UpdateContainerResourcesRequest,
		...grpc.CallOption) (*runtimeapi.UpdateContainerResourcesResponse, error)
}

// cgroups knows the cgroups of containers that run. They say false when they do
// not know that of this one.
type cgroups interface {
	// Pin moves a container to other CPUs, in the kernel.
	Pin(p *corev1.Pod, id, cpus string) (bool, error)
	// Pinned reads what it has.
	Pinned(p *corev1.Pod, id string) (cpus, mems string, ok bool)
}

// Options are what Placements needs from its surroundings. All are required.
type Options struct {
	Ledger ledger
	// Changed gets a token when the ledger has changed.
	Changed <-chan struct{}
	Runtime runtime
	Cgroups cgroups
	// Observed are the pods as the runtime shows them, Pod those of the node.
	Observed *store.Table[types.UID, *pod.Observed]
	Pod      func(types.UID) (*corev1.Pod, bool)
	Log      *slog.Logger
}

// Placements knows which container runs where. Its methods may be called from
// any goroutine.
type Placements struct {
	opts Options
	wake chan struct{} // the runtime is to be told

	// moving is held while containers get other CPUs, from the kernel or from the
	// runtime: who starts waits for it, and neither undoes what the other has done.
	moving sync.Mutex

	mu     sync.Mutex
	made   map[ref]place       // what a container was created with that has no booking yet
	booked map[string]*booking // by container id
}

type ref struct {
	uid  types.UID
	name string
}

// booking is one container that may run.
type booking struct {
	pod  *corev1.Pod
	name string
	at   place  // in the kernel
	told string // the CPUs that the runtime has been told; "" when that is not known
	seen bool   // as running
}

// New makes Placements that know nothing.
func New(o Options) *Placements {
	return &Placements{opts: o, wake: make(chan struct{}, 1), made: map[ref]place{}, booked: map[string]*booking{}}
}

// Unthrottled says whether a container is to have no CPU quota.
func (s *Placements) Unthrottled(p *corev1.Pod, c pod.Container) bool {
	a, ok := s.opts.Ledger.Get(p.UID)
	return ok && unthrottled(p, c, a)
}

// PodUnthrottled says whether a pod's cgroup is to have no CPU quota.
func (s *Placements) PodUnthrottled(p *corev1.Pod) bool {
	a, ok := s.opts.Ledger.Get(p.UID)
	return ok && podUnthrottled(p, a)
}

// Place is where a container runs, as cpuset.cpus and cpuset.mems list it; "" for
// where it likes.
func (s *Placements) Place(p *corev1.Pod, container string) (cpus, mems string) {
	at := s.wanted(p, container)
	return at.cpus, at.mems
}

func (s *Placements) wanted(p *corev1.Pod, name string) place {
	a, _ := s.opts.Ledger.Get(p.UID)
	return placeOf(p, name, a, s.opts.Ledger.Shared())
}

// settle moves the containers that are not where they belong. When it returns,
// those that the node can move have left the CPUs of others.
func (s *Placements) settle(ctx context.Context) error {
	s.moving.Lock()
	defer s.moving.Unlock()
	var errs []error
	for id, b := range s.bookings() {
		want := s.wanted(b.pod, b.name)
		if want.cpus == "" || want.cpus == b.at.cpus {
			continue
		}
		if err := s.move(ctx, id, b, want.cpus); err != nil {
			errs = append(errs,
				fmt.Errorf("move container %q of pod %s to CPUs %s: %w", b.name, pod.FullName(b.pod), want.cpus, err))
		}
	}
	return errors.Join(errs...)
}

// move gives one container other CPUs: in the kernel first, which is done at
// once, and through the runtime where the kernel's place is not known.
func (s *Placements) move(ctx context.Context, id string, b booking, cpus string) error {
	pinned, err := s.opts.Cgroups.Pin(b.pod, id, cpus)
	if err != nil {
		return err
	}
	if !pinned {
		if err := s.tell(ctx, id, cpus); err != nil {
			return err
		}
	}
	s.mu.Lock()
	if now := s.booked[id]; now != nil {
		now.at.cpus = cpus
		if !pinned {
			now.told = cpus
		}
	}
	s.mu.Unlock()
	if pinned {
		s.poke()
	}
	return nil
}

// tell has the runtime know a container's CPUs, so that the next change it makes
// does not undo ours; moving is held. One that is gone needs nothing.
func (s *Placements) tell(ctx context.Context, id, cpus string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := s.opts.Runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: id, Linux: &runtimeapi.LinuxContainerResources{CpusetCpus: cpus},
	})
	if cri.IsNotFound(err) {
		return nil
	}
	return err
}

// bookings is a copy.
func (s *Placements) bookings() map[string]booking {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]booking, len(s.booked))
	for id, b := range s.booked {
		all[id] = *b
	}
	return all
}

func (s *Placements) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Forget drops what is remembered of a pod that is gone.
func (s *Placements) Forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.made, func(r ref, _ place) bool { return r.uid == uid })
	maps.DeleteFunc(s.booked, func(_ string, b *booking) bool { return b.pod.UID == uid })
}
