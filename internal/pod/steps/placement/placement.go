package placement

import (
	"context"
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
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/resource"
)

// ledger holds the allocations of pods.
type ledger interface {
	Get(types.UID) (resource.Allocation, bool)
	// Shared returns the CPUs that no pod holds exclusively. It is empty if no CPUs are pinned.
	Shared() cpuset.CPUSet
}

type runtime interface {
	UpdateContainerResources(context.Context, *runtimeapi.UpdateContainerResourcesRequest,
		...grpc.CallOption) (*runtimeapi.UpdateContainerResourcesResponse, error)
}

// cgroups reads and writes the cgroups of running containers. Its methods return false for a container whose cgroup is
// unknown.
type cgroups interface {
	// Pin sets the CPUs of a container in the kernel.
	Pin(p *corev1.Pod, id, cpus string) (bool, error)
	// Pinned reads the CPUs and NUMA nodes of a container from the kernel.
	Pinned(p *corev1.Pod, id string) (cpus, mems string, ok bool)
}

// pods are the pods of this node.
type pods interface {
	Pod(types.UID) (*corev1.Pod, bool)
}

// Options are the dependencies of Placements. All are required.
type Options struct {
	Ledger ledger
	// Changed receives after each change of the ledger.
	Changed <-chan struct{}
	Runtime runtime
	Cgroups cgroups
	// Observed holds the pods as the runtime reports them.
	Observed *store.Table[types.UID, *pod.Observed]
	Pods     pods
	Log      *slog.Logger
}

// Placements records which container runs where. Its methods may be called from any goroutine.
type Placements struct {
	opts Options
	wake wake.Signal // wakes Run to report moves to the runtime

	// moving is held while a container gets other CPUs, in the kernel or through the runtime. A start waits for it. It
	// prevents that kernel and runtime undo each other's change.
	moving sync.Mutex

	mu     sync.Mutex
	made   map[ref]place       // the place in the configuration of a container that PreStart has not recorded yet
	booked map[string]*booking // by container id
}

type ref struct {
	uid  types.UID
	name string
}

// booking is the record of a container that may run.
type booking struct {
	pod      *corev1.Pod
	name     string
	at       place  // as set in the kernel
	reported string // the CPUs as last reported to the runtime; "" if unknown
	seen     bool   // the runtime has reported it as running
}

// New returns Placements without records.
func New(o Options) *Placements {
	return &Placements{opts: o, wake: wake.New(), made: map[ref]place{}, booked: map[string]*booking{}}
}

func (s *Placements) wanted(p *corev1.Pod, name string) place {
	return Rules{s.opts.Ledger}.wanted(p, name)
}

// settle moves all containers that are not in their place. After it returns, the containers that could be moved have
// left the CPUs of others. It returns the others.
func (s *Placements) settle(ctx context.Context) (failed []stuck) {
	s.moving.Lock()
	defer s.moving.Unlock()
	for id, b := range s.bookings() {
		want := s.wanted(b.pod, b.name)
		if want.cpus == "" || want.cpus == b.at.cpus {
			continue
		}
		if err := s.move(ctx, id, b, want.cpus); err != nil {
			failed = append(failed, stuck{id: id, cpus: b.at.cpus,
				err: fmt.Errorf("move container %q of pod %s to CPUs %s: %w", b.name, pod.FullName(b.pod), want.cpus,
					err)})
		}
	}
	return failed
}

// move gives a container other CPUs. It sets them in the kernel, which works at once, or through the runtime if the
// cgroup is unknown.
func (s *Placements) move(ctx context.Context, id string, b booking, cpus string) error {
	pinned, err := s.opts.Cgroups.Pin(b.pod, id, cpus)
	if err != nil {
		return err
	}
	if !pinned {
		if err := s.notify(ctx, id, cpus); err != nil {
			return err
		}
	}
	s.mu.Lock()
	if now := s.booked[id]; now != nil {
		now.at.cpus = cpus
		if !pinned {
			now.reported = cpus
		}
	}
	s.mu.Unlock()
	if pinned {
		s.wake.Wake()
	}
	return nil
}

// notify reports a container's CPUs to the runtime, so that the runtime's next update does not undo them. A container
// that is gone is no error. The caller holds moving.
func (s *Placements) notify(ctx context.Context, id, cpus string) error {
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

// bookings returns a copy of the records.
func (s *Placements) bookings() map[string]booking {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]booking, len(s.booked))
	for id, b := range s.booked {
		all[id] = *b
	}
	return all
}

// Forget removes the records of a pod that is gone.
func (s *Placements) Forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.made, func(r ref, _ place) bool { return r.uid == uid })
	maps.DeleteFunc(s.booked, func(_ string, b *booking) bool { return b.pod.UID == uid })
}
