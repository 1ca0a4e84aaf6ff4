package resize

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/event"
)

// Reasons of events, as in Kubernetes.
const (
	ResizeDeferred   = "ResizeDeferred"
	ResizeInfeasible = "ResizeInfeasible"
	ResizeStarted    = "ResizeStarted"
	ResizeCompleted  = "ResizeCompleted"
	ResizeError      = "ResizeError"
)

type runtime interface {
	UpdateContainerResources(context.Context, *runtimeapi.UpdateContainerResourcesRequest,
		...grpc.CallOption) (*runtimeapi.UpdateContainerResourcesResponse, error)
	UpdatePodSandboxResources(context.Context, *runtimeapi.UpdatePodSandboxResourcesRequest,
		...grpc.CallOption) (*runtimeapi.UpdatePodSandboxResourcesResponse, error)
	ContainerStats(context.Context, *runtimeapi.ContainerStatsRequest,
		...grpc.CallOption) (*runtimeapi.ContainerStatsResponse, error)
}

// cgroups changes the limits of a pod's cgroup while its containers run.
type cgroups interface {
	Fits(*corev1.Pod) bool
	Grow(*corev1.Pod) error
	Fit(*corev1.Pod) error
}

// resources converts the resources of containers.
type resources interface {
	// Resources returns a container's resources in the form of the CRI.
	Resources(*corev1.Pod, pod.Container) *runtimeapi.LinuxContainerResources
	// PodResources returns the resources of all containers together, and the sandbox's own.
	PodResources(*corev1.Pod) (containers, overhead *runtimeapi.LinuxContainerResources)
}

// allocations knows the resources that belong to one pod alone.
type allocations interface {
	// Fixed returns why the resources of a pod cannot change from was to want while it runs, "" if they can.
	Fixed(was, want *corev1.Pod) string
}

// pods are the pods of this node.
type pods interface {
	// Known reports whether a pod is desired or being ended.
	Known(types.UID) bool
}

// Options are the dependencies of Resizes.
type Options struct {
	Runtime runtime
	Cgroups cgroups
	// Resources has the resources of containers in the form of the CRI.
	Resources resources
	// Allocations decides which resources can change while a pod runs.
	Allocations allocations
	// Swap is set if containers of this node may use swap.
	Swap bool
	// InitFixed means that only sidecars among init containers can be resized. PodFixed means that pod-level resources
	// cannot be resized.
	InitFixed, PodFixed bool
	// KubeletDir is the root directory of a kubelet that may replace this agent, or that it has replaced. "" means that
	// there is none.
	KubeletDir string
	Events     event.Sink
	// Dir is the directory of the allocations, one file a pod.
	Dir string
	// Synced is closed when all desired pods are known. Allocations of unknown pods are removed then.
	Synced <-chan struct{}
	Pods   pods
	Log    *slog.Logger
}

// Resizes holds the allocated and actuated resources of pods. Its methods may be called from any goroutine.
type Resizes struct {
	*ledger
	opts     Options
	metrics  metrics
	actuator actuator
}

// New returns Resizes without pods. Call Load before its other methods.
func New(o Options) *Resizes {
	l, m := newLedger(o), newMetrics()
	return &Resizes{ledger: l, opts: o, metrics: m, actuator: actuator{
		ledger: l, runtime: o.Runtime, cgroups: o.Cgroups, resources: o.Resources, events: o.Events, metrics: m,
	}}
}

// Allocate returns the version of a desired pod that the node runs: with the sizes it wants if they are granted,
// otherwise with the sizes allocated before. alone and beside return why a pod does not fit, "" if it does. A pod that
// was not admitted yet is returned unchanged.
func (s *Resizes) Allocate(want *pod.Pod, alone, beside func(*pod.Pod) string) *pod.Pod {
	s.mu.Lock()
	e := s.pods[want.UID]
	if e == nil {
		s.mu.Unlock()
		return want
	}
	allocated := e.Allocated
	s.mu.Unlock()
	s.countRequest(want)
	now := sized(want, allocated)
	if now == want {
		s.pend(want, answer{})
		return s.complete(want)
	}
	a := decide(question{was: now.Pod, want: want.Pod, fixed: s.opts.Allocations.Fixed(now.Pod, want.Pod),
		alone: alone(want), beside: beside(want), swap: s.opts.Swap,
		podFixed: s.opts.PodFixed})
	if a == (answer{}) {
		if err := s.promise(want); err != nil {
			s.opts.Log.Error("save allocated resources of a pod failed, its resize is deferred", "pod",
				pod.FullName(want.Pod), "err", err)
			a = answer{reason: deferred, message: "save the allocation: " + err.Error()}
		}
	}
	s.pend(want, a)
	if a == (answer{}) {
		return want
	}
	return now
}

// countRequest counts the sizes that a pod requests and did not request before.
func (s *Resizes) countRequest(want *pod.Pod) {
	sizes := s.sizes(want.Pod)
	s.with(want.UID, func(e *entry) bool {
		was := e.wanted
		if was == nil {
			was = e.Allocated
		}
		s.metrics.request(was, sizes)
		e.wanted = sizes
		return false
	})
}

// complete adds the containers to the record that it lacks, such as a new sidecar.
func (s *Resizes) complete(p *pod.Pod) *pod.Pod {
	s.with(p.UID, func(e *entry) bool {
		sizes := s.sizes(p.Pod)
		if len(e.Allocated) == len(sizes) {
			return false
		}
		e.Allocated = sizes
		return true
	})
	return p
}

// promise allocates the wanted resources of a pod, on disk first.
func (s *Resizes) promise(want *pod.Pod) error {
	s.mu.Lock()
	e := s.pods[want.UID]
	was := e.record
	e.Allocated, e.Resizing, e.Generation = s.sizes(want.Pod), true, want.Generation
	_, resized := e.Actuated[Whole]
	if !resized && len(changes(was.Allocated[Whole], e.Allocated[Whole])) > 0 {
		e.Actuated = maps.Clone(e.Actuated)
		if e.Actuated == nil {
			e.Actuated = map[string]given{}
		}
		e.Actuated[Whole] = given{Resources: was.Allocated[Whole]}
	}
	s.mu.Unlock()
	if err := s.save(want.UID); err != nil {
		s.with(want.UID, func(e *entry) bool {
			e.Allocated, e.Resizing, e.Generation = was.Allocated, was.Resizing, was.Generation
			return false // the actuated resources are true whether the promise is kept or not
		})
		return err
	}
	s.opts.Events.Event(event.PodRef(want.Pod), corev1.EventTypeNormal, ResizeStarted, "Pod resize started: %s",
		describe(want.Pod, want.Generation, ""))
	return nil
}

// pend records why a pod does not get its wanted resources. It emits an event if the reason or the pod's generation is
// new.
func (s *Resizes) pend(want *pod.Pod, a answer) {
	news := false
	s.with(want.UID, func(e *entry) bool {
		news = a.reason != "" && (e.pending.reason != a.reason || e.pendingGeneration != want.Generation)
		if a == (answer{}) && e.pending.reason == deferred && e.Resizing {
			s.metrics.accepted.WithLabelValues(retried).Inc()
		}
		e.pending, e.pendingGeneration = a, want.Generation
		return false
	})
	if !news {
		return
	}
	why := ResizeDeferred
	if a.reason == infeasible {
		why = ResizeInfeasible
		s.metrics.infeasible.WithLabelValues(a.detail).Inc()
	}
	s.opts.Events.Event(event.PodRef(want.Pod), corev1.EventTypeWarning, why, "Pod resize %s: %s", a.reason,
		describe(want.Pod, want.Generation, a.message))
}

// Restarts returns the ids of a pod's containers that must restart.
func (s *Resizes) Restarts(uid types.UID) map[string]bool {
	ids := map[string]bool{}
	for _, g := range s.given(uid) {
		if g.Restart {
			ids[g.ID] = true
		}
		if g.Replaced != "" {
			ids[g.Replaced] = true
		}
	}
	return ids
}

// Actuated returns the resources of a pod's containers by container id. Under Whole it returns the resources
// of the pod's cgroup, if the pod's own resources were ever resized.
func (s *Resizes) Actuated(uid types.UID) Sizes {
	all := Sizes{}
	for _, g := range s.given(uid) {
		all[g.ID] = g.Resources
	}
	return all
}

// Conditions returns the conditions of a resize that is not complete (KEP-1287). Conditions that it does not list are
// false.
func (s *Resizes) Conditions(uid types.UID) []corev1.PodCondition {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.pods[uid]
	if e == nil {
		return nil
	}
	var all []corev1.PodCondition
	if e.pending.reason != "" {
		all = append(all,
			corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: e.pending.reason,
				Message: e.pending.message, ObservedGeneration: e.pendingGeneration})
	}
	if e.Resizing {
		c := corev1.PodCondition{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue,
			ObservedGeneration: e.Generation}
		if e.failed != "" {
			c.Reason, c.Message = corev1.PodReasonError, e.failed
		}
		all = append(all, c)
	}
	return all
}

// summary is the part of an event's message that programs read, in the kubelet's form.
type summary struct {
	InitContainers []allocation `json:"initContainers,omitempty"`
	Containers     []allocation `json:"containers,omitempty"`
	Generation     int64        `json:"generation"`
	Error          string       `json:"error,omitempty"`
}

type allocation struct {
	Name      string                      `json:"name"`
	Resources corev1.ResourceRequirements `json:"resources"`
}

// describe returns the resources of a pod's containers as JSON. generation is the one that asks for the resize.
func describe(p *corev1.Pod, generation int64, failure string) string {
	s := summary{Generation: generation, Error: failure}
	for _, c := range pod.Containers(p) {
		a := allocation{c.Name, c.Resources}
		switch c.Kind {
		case pod.App:
			s.Containers = append(s.Containers, a)
		case pod.Init, pod.Sidecar:
			s.InitContainers = append(s.InitContainers, a)
		case pod.Ephemeral: // it has no resources
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
