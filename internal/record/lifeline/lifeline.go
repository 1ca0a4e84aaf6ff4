package lifeline

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/store"
)

// Lifeline is the history of a pod's containers.
type Lifeline struct {
	UID types.UID `json:"uid"`
	// Since is when the recording began: the start of the agent.
	Since      time.Time   `json:"since"`
	Containers []Container `json:"containers"`
}

// Container is one container of a pod.
type Container struct {
	Name string `json:"name"`
	// Instances are the runs of the container, oldest first.
	Instances []Instance `json:"instances,omitempty"`
	Probes    []Probe    `json:"probes,omitempty"`
}

// Instance is one run of a container.
type Instance struct {
	Start time.Time `json:"start"`
	// End is zero while the instance runs. The fields below it are set with it.
	End      time.Time `json:"end,omitzero"`
	ExitCode int32     `json:"exitCode,omitempty"`
	Reason   string    `json:"reason,omitempty"`
}

// Probe has the results of one probe.
type Probe struct {
	// Kind is Startup, Readiness or Liveness.
	Kind string `json:"kind"`
	// Results has the results that differ from the one before, oldest first.
	Results []Result `json:"results"`
	// Last is when the probe last ran.
	Last time.Time `json:"last"`
}

// Result is the result of a probe from a time on.
type Result struct {
	At time.Time `json:"at"`
	OK bool      `json:"ok"`
}

// Recorder records lifelines. Its methods may be called from any goroutine.
type Recorder struct {
	since time.Time

	mu    sync.Mutex
	lines map[types.NamespacedName]*Lifeline
}

// New returns a Recorder without lifelines.
func New(now time.Time) *Recorder {
	return &Recorder{since: now.Round(0), lines: map[types.NamespacedName]*Lifeline{}}
}

// Run follows the pods of the node until ctx ends.
func (r *Recorder) Run(ctx context.Context, pods *store.Table[types.NamespacedName, *corev1.Pod]) error {
	w := pods.Watch()
	defer w.Stop()
	for {
		changes, err := w.Next(ctx)
		if err != nil {
			return err
		}
		for _, c := range changes {
			r.show(c.Key, c.Value, c.Deleted)
		}
	}
}

func (r *Recorder) show(key types.NamespacedName, p *corev1.Pod, gone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if gone {
		delete(r.lines, key)
		return
	}
	line := r.lines[key]
	if line == nil || line.UID != p.UID {
		line = &Lifeline{UID: p.UID, Since: r.since}
		r.lines[key] = line
	}
	for _, st := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses,
		p.Status.EphemeralContainerStatuses) {
		line.container(st.Name).show(st)
	}
}

func (l *Lifeline) container(name string) *Container {
	i := slices.IndexFunc(l.Containers, func(c Container) bool { return c.Name == name })
	if i < 0 {
		i = len(l.Containers)
		l.Containers = append(l.Containers, Container{Name: name})
	}
	return &l.Containers[i]
}

// Probed records the result of a probe. It ignores pods that are not published.
func (r *Recorder) Probed(p *corev1.Pod, container, kind string, ok bool, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	line := r.lines[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}]
	if line != nil && line.UID == p.UID {
		line.container(container).probed(kind, ok, at.Round(0))
	}
}

// Find returns the lifeline of a pod.
func (r *Recorder) Find(key types.NamespacedName) (l Lifeline, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	line := r.lines[key]
	if line == nil {
		return l, false
	}
	l = *line
	l.Containers = slices.Clone(l.Containers)
	for i := range l.Containers {
		c := &l.Containers[i]
		c.Instances = slices.Clone(c.Instances)
		c.Probes = slices.Clone(c.Probes)
		for k := range c.Probes {
			c.Probes[k].Results = slices.Clone(c.Probes[k].Results)
		}
	}
	return l, true
}
