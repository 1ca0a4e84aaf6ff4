package cgroup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/steps/cgroup/hierarchy"
	"github.com/berth-run/berth/internal/pod/worker"
	"github.com/berth-run/berth/internal/record/event"
)

// classes returns the QoS classes. Each has a cgroup that its pods are in.
func classes() []corev1.PodQOSClass {
	return []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort}
}

// Config of Cgroups.
type Config struct {
	// Driver is the one that the runtime reports (CRI RuntimeConfig).
	Driver hierarchy.Driver
	// Root is the cgroup above kubepods, as a cgroupfs path. Default /.
	Root string
	// Options apply to every pod.
	Options Options
	// Usable limits the CPU and the memory of all pods together. Resources that it omits are not limited.
	Usable corev1.ResourceList
	// QOSReserved is the percentage of the requests of higher QoS classes that lower classes cannot use. Default 0.
	QOSReserved int64
	// Reserved lists cgroups outside the pods' cgroups that get limits too.
	Reserved []Reserved
	Fleet    Fleet
	// Drift watches the cgroups for changes from outside. It may be nil.
	Drift  drift
	Node   corev1.ObjectReference
	Events event.Sink
	Log    *slog.Logger
}

// Fleet is the set of this node's pods.
type Fleet interface {
	// Pods returns the admitted pods. Their requests determine the CPU share of all Burstable pods together.
	Pods() []*corev1.Pod
	// Wake makes the worker of a pod plan again, because the pod's cgroup has vanished.
	Wake(types.UID)
}

// Cgroups makes and removes the cgroups above containers.
type Cgroups struct {
	cfg      *Config
	host     *host
	levels   *levels
	reserved *reservations
	pods     *podRecords
	metrics  metrics
	changed  wake.Signal // wakes Run
}

// New returns a Cgroups. It reads the host's hierarchy when the first pod comes.
func New(cfg Config) *Cgroups {
	c := &Cgroups{cfg: &cfg, metrics: newMetrics(), changed: wake.New()}
	c.pods = &podRecords{all: map[types.UID]*podRecord{}}
	c.host = &host{driver: cfg.Driver, root: hierarchy.ParseName(cfg.Root), log: cfg.Log}
	results := &outcomes{events: cfg.Events, node: cfg.Node, last: map[string]string{}}
	c.levels = &levels{cfg: c.cfg, host: c.host, outcomes: results, changed: c.changed}
	c.reserved = &reservations{cfg: c.cfg, host: c.host, outcomes: results}
	return c
}

// Step is the step that makes and removes a pod's cgroup.
func (c *Cgroups) Step() worker.Step {
	return worker.Step{
		Name: "cgroup", Phase: worker.Prepare,
		Setup: func(_ context.Context, r *worker.Run) error { return c.setup(r.Pod.Pod, containersRun(r.Observed)) },
		Teardown: func(ctx context.Context, r *worker.Run) error {
			return c.Remove(ctx, r.Pod.UID)
		},
	}
}

// Parent returns the cgroup parent of the pod's sandbox as the CRI expects it: a path, which consists of slices with
// the systemd driver.
func (c *Cgroups) Parent(p *corev1.Pod) string {
	name, err := podName(c.host.root, pod.QOS(p), p.UID)
	if err != nil {
		return "" // Setup has failed with the same error
	}
	if c.cfg.Driver == hierarchy.Systemd {
		slice, err := name.Systemd()
		if err != nil {
			return ""
		}
		return slice
	}
	return name.Cgroupfs()
}

// containersRun reports whether containers may be using the limits of the pod's cgroup now.
func containersRun(o *pod.Observed) bool {
	return slices.ContainsFunc(o.ContainersOf(), func(s pod.ContainerStatus) bool {
		return s.State == pod.StateRunning || s.State == pod.StateUnknown
	})
}

func (c *Cgroups) setup(p *corev1.Pod, used bool) error {
	defer c.metrics.took("create", time.Now())
	if err := c.ensure(p, used); err != nil {
		c.cfg.Events.Event(event.PodRef(p), corev1.EventTypeWarning, reason.FailedPodCgroup,
			"unable to ensure pod container exists: %v", err)
		return reason.Wrap(reason.FailedPodCgroup, err)
	}
	return nil
}

// ensure makes the pod's cgroup. It does not change the limits of a cgroup in use: package resize changes them together
// with the limits of the containers.
func (c *Cgroups) ensure(p *corev1.Pod, used bool) error {
	class := pod.QOS(p)
	name, err := podName(c.host.root, class, p.UID)
	if err != nil {
		return err
	}
	t, err := c.levels.ensure(class)
	if err != nil {
		return err
	}
	if used && t.Complete(name) {
		c.watch(p)
		return nil
	}
	l := ForPod(p, c.cfg.Options)
	if err := t.Apply(name, l); err != nil {
		return err
	}
	c.pods.put(p, l, &l)
	c.watch(p)
	c.notify(class)
	return nil
}

// Empty kills everything that runs in a pod's cgroup. A missing cgroup is not an error.
func (c *Cgroups) Empty(ctx context.Context, p *corev1.Pod) error {
	name, t, err := c.host.pod(p)
	if err != nil || !t.Exists(name) {
		return err
	}
	if err := t.Kill(ctx, name); err != nil {
		return fmt.Errorf("kill the processes in the pod's cgroup: %w", err)
	}
	return nil
}

// Remove kills everything that runs in the cgroup of a pod, whatever its class was, and removes the cgroup. A missing
// cgroup is not an error.
func (c *Cgroups) Remove(ctx context.Context, uid types.UID) error {
	defer c.metrics.took("destroy", time.Now())
	t, err := c.host.open()
	if err != nil {
		return err
	}
	c.forget(uid)
	for _, class := range classes() {
		name, err := podName(c.host.root, class, uid)
		if err != nil {
			return err
		}
		if !t.Exists(name) {
			continue
		}
		if err := t.Kill(ctx, name); err != nil {
			return fmt.Errorf("kill the processes in the pod's cgroup: %w", err)
		}
		if err := t.Remove(name); err != nil {
			return err
		}
		c.notify(class)
	}
	return nil
}

// RemoveLevels removes the cgroups above pods, for a node that shall run no pods again. A cgroup that still holds a pod
// is an error. The configured root is removed too if it is empty, unless it is the root of the hierarchy.
func (c *Cgroups) RemoveLevels() error { return c.levels.remove() }

// Orphans returns the pods that have a cgroup and are not known.
func (c *Cgroups) Orphans(known func(types.UID) bool) ([]types.UID, error) {
	t, err := c.host.open()
	if err != nil {
		return nil, err
	}
	var orphans []types.UID
	var errs []error
	for _, class := range classes() {
		children, err := t.Children(level(c.host.root, class))
		errs = append(errs, err)
		for _, dir := range children {
			if uid, ok := podUID(path.Base(dir), c.cfg.Driver); ok && !known(uid) {
				orphans = append(orphans, uid)
			}
		}
	}
	return orphans, errors.Join(errs...)
}

func (c *Cgroups) notify(class corev1.PodQOSClass) {
	if class == corev1.PodQOSBestEffort ||
		class == corev1.PodQOSGuaranteed && c.cfg.Options.MemoryQoS == nil && c.cfg.QOSReserved == 0 {
		return // the limits of no level depend on pods of this class
	}
	c.changed.Wake()
}
