package cgroup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/worker"
	"github.com/berth-run/berth/internal/record/event"
)

// classes are the levels that pods stand in.
func classes() []corev1.PodQOSClass {
	return []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort}
}

// Config of Cgroups.
type Config struct {
	// Driver is what the runtime says it uses (CRI RuntimeConfig).
	Driver Driver
	// Root is the cgroup below which kubepods stands, a path as cgroupfs spells
	// it. Default /.
	Root string
	// Options hold for every pod.
	Options Options
	// Usable bounds the CPU and the memory of all pods together. What is not in
	// it is not bounded.
	Usable corev1.ResourceList
	// QOSReserved is the part of what pods of higher classes request, in percent,
	// that lower ones cannot use. Default 0.
	QOSReserved int64
	// Reserved are the cgroups that are bounded beside that of all pods.
	Reserved []Reserved
	// Pods are the admitted ones; what they request sets the share of the CPU
	// that Burstable pods get together.
	Pods func() []*corev1.Pod
	// Drift looks after what is made here. nil: nobody does.
	Drift drift
	// Lost is told that a pod's cgroup has vanished. nil: nobody is.
	Lost   func(types.UID)
	Node   corev1.ObjectReference
	Events event.Sink
	Log    *slog.Logger
}

// Cgroups makes and removes the cgroups above containers.
type Cgroups struct {
	cfg     Config
	root    Name
	metrics metrics
	changed wake.Signal // wakes Run

	mu    sync.Mutex
	tree  *tree
	made  bool   // this process has set the levels' limits
	asked demand // of the Burstable level
	pods  map[types.UID]*held

	enforcing sync.Mutex
	told      map[string]string // how the last try went to bound what is reserved
}

// held is what this process knows of a pod's cgroup.
type held struct {
	pod     *corev1.Pod
	fits    *Limits   // those of the pod, if it has them
	written *Limits   // those it was given last
	lost    time.Time // when it was last found to have vanished
}

// New makes a Cgroups. The host is looked at when the first pod comes.
func New(c Config) *Cgroups {
	return &Cgroups{cfg: c, root: parseName(c.Root), metrics: newMetrics(), changed: wake.New(),
		pods: map[types.UID]*held{}, told: map[string]string{}}
}

// Step is the cgroups' place in a pod's life.
func (c *Cgroups) Step() worker.Step {
	return worker.Step{
		Name: "cgroup", Phase: worker.Prepare,
		Setup: func(_ context.Context, r *worker.Run) error { return c.setup(r.Pod.Pod, containersRun(r.Observed)) },
		Teardown: func(ctx context.Context, r *worker.Run) error {
			return c.Remove(ctx, r.Pod.UID)
		},
	}
}

// Parent is the cgroup parent of the pod's sandbox as the CRI takes it: a path,
// of slices with the systemd driver.
func (c *Cgroups) Parent(p *corev1.Pod) string {
	name, err := podName(c.root, pod.QOS(p), p.UID)
	if err != nil {
		return "" // Setup has failed with this error
	}
	if c.cfg.Driver == Systemd {
		slice, err := name.Systemd()
		if err != nil {
			return ""
		}
		return slice
	}
	return name.Cgroupfs()
}

// containersRun says whether somebody may use the limits of the pod's cgroup now.
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

// ensure makes the pod's cgroup. The limits of one in use are not touched: they
// change in step with those of the containers.
func (c *Cgroups) ensure(p *corev1.Pod, used bool) error {
	class := pod.QOS(p)
	name, err := podName(c.root, class, p.UID)
	if err != nil {
		return err
	}
	t, err := c.levels(class)
	if err != nil {
		return err
	}
	if used && t.complete(name) {
		guard{c}.lookAfter(p)
		return nil
	}
	l := ForPod(p, c.cfg.Options)
	if err := t.apply(name, l); err != nil {
		return err
	}
	c.remember(p, l, &l)
	guard{c}.lookAfter(p)
	c.notify(class)
	return nil
}

// levels makes what stands above a pod of that class. It costs a few system
// calls when it is there already.
func (c *Cgroups) levels(class corev1.PodQOSClass) (*tree, error) {
	t, err := c.open()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made && t.complete(level(c.root, class)) {
		return t, nil
	}
	c.asked = demandOf(c.cfg.Pods())
	for _, class := range classes() {
		l := levelLimits(class, c.asked, c.cfg)
		err := t.apply(level(c.root, class), l)
		if err == nil {
			continue
		}
		// What runs may use more than it should: that is no reason to start nothing.
		if err2 := t.apply(level(c.root, class), Limits{Shares: l.Shares}); err2 != nil {
			return nil, err2
		}
		enforcer{c}.failed(level(c.root, class), err)
	}
	c.made = true
	guard{c}.lookAfterLevels()
	return t, nil
}

func (c *Cgroups) open() (*tree, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tree == nil {
		t, err := openTree(c.cfg.Driver, c.cfg.Log)
		if err != nil {
			return nil, err
		}
		c.tree = t
	}
	return c.tree, nil
}

// Empty ends what still runs in a pod's cgroup. One that is not there is no error.
func (c *Cgroups) Empty(ctx context.Context, p *corev1.Pod) error {
	name, t, err := c.podTree(p)
	if err != nil || !t.exists(name) {
		return err
	}
	if err := t.kill(ctx, name); err != nil {
		return fmt.Errorf("empty the pod's cgroup: %w", err)
	}
	return nil
}

// Remove ends what still runs in the cgroup of a pod, of whatever class it was,
// and removes it. A pod that has none is no error.
func (c *Cgroups) Remove(ctx context.Context, uid types.UID) error {
	defer c.metrics.took("destroy", time.Now())
	t, err := c.open()
	if err != nil {
		return err
	}
	guard{c}.leaveAlone(uid)
	for _, class := range classes() {
		name, err := podName(c.root, class, uid)
		if err != nil {
			return err
		}
		if !t.exists(name) {
			continue
		}
		if err := t.kill(ctx, name); err != nil {
			return fmt.Errorf("empty the pod's cgroup: %w", err)
		}
		if err := t.remove(name); err != nil {
			return err
		}
		c.notify(class)
	}
	return nil
}

// Orphans lists the pods that have a cgroup and are not known.
func (c *Cgroups) Orphans(known func(types.UID) bool) ([]types.UID, error) {
	t, err := c.open()
	if err != nil {
		return nil, err
	}
	var orphans []types.UID
	var errs []error
	for _, class := range classes() {
		children, err := t.children(level(c.root, class))
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
		return // no level depends on it
	}
	c.changed.Wake()
}
