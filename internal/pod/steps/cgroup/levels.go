package cgroup

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/pod/steps/cgroup/hierarchy"
)

// levels are the cgroups above pods, one for each QoS class.
type levels struct {
	cfg      *Config
	host     *host
	outcomes *outcomes
	changed  wake.Signal // wakes Run

	mu     sync.Mutex
	made   bool   // this process has made them and set their limits
	demand demand // that their limits were made from
}

func levelKey(class corev1.PodQOSClass) string { return "level/" + strings.ToLower(string(class)) }

// name returns the cgroup of a level.
func (l *levels) name(class corev1.PodQOSClass) hierarchy.Name { return level(l.host.root, class) }

// ensure makes the cgroups above a pod of that class. It costs a few system calls if they exist already.
func (l *levels) ensure(class corev1.PodQOSClass) (*hierarchy.Tree, error) {
	t, err := l.host.open()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.made && t.Complete(l.name(class)) {
		return t, nil
	}
	l.demand = demandOf(l.cfg.Fleet.Pods())
	for _, class := range classes() {
		limits := levelLimits(class, l.demand, *l.cfg)
		err := t.Apply(l.name(class), limits)
		if err == nil {
			continue
		}
		// Running containers may already use more than the limits allow. That is no reason to start nothing.
		if err2 := t.Apply(l.name(class), hierarchy.Limits{Shares: limits.Shares}); err2 != nil {
			return nil, err2
		}
		l.fail(class, err)
		l.changed.Wake()
	}
	l.made = true
	l.watch(t)
	return t, nil
}

// fail records that a level does not have its limits, so that retry sets them.
func (l *levels) fail(class corev1.PodQOSClass, err error) {
	name := l.name(class).Cgroupfs()
	l.outcomes.fail(name, fmt.Sprintf("Failed to update Node Allocatable Limits %q: %v", name, err))
}

// retry sets the limits of every level whose last attempt failed. It returns whether one failed again.
func (l *levels) retry() (failed bool) {
	for _, class := range classes() {
		key := l.name(class).Cgroupfs()
		if !l.outcomes.failed(key) {
			continue
		}
		if err := l.set(class); err != nil {
			failed = true
			l.fail(class, err)
			continue
		}
		l.outcomes.succeed(key, "Updated Node Allocatable limit across pods")
	}
	return failed
}

func (l *levels) set(class corev1.PodQOSClass) error {
	t, err := l.host.open()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return t.Set(l.name(class), levelLimits(class, l.demand, *l.cfg))
}

// follow updates the limits of the levels if the requests of all pods have changed.
func (l *levels) follow() error {
	current := demandOf(l.cfg.Fleet.Pods())
	t, err := l.host.open()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.made || current == l.demand {
		return nil
	}
	for _, class := range classes() {
		limits, previous := levelLimits(class, current, *l.cfg), levelLimits(class, l.demand, *l.cfg)
		if reflect.DeepEqual(limits, previous) {
			continue
		}
		if err := t.Set(l.name(class), limits); err != nil {
			return err
		}
	}
	l.demand = current
	return nil
}

// watch makes Drift watch the levels. The caller holds mu. A limit that Berth does not set belongs to the operator.
func (l *levels) watch(t *hierarchy.Tree) {
	if l.cfg.Drift == nil {
		return
	}
	for _, class := range classes() {
		kind := "qos"
		if class == corev1.PodQOSGuaranteed {
			kind = "node"
		}
		w := wanted{t: t, name: l.name(class), want: func() (hierarchy.Limits, bool) {
			l.mu.Lock()
			defer l.mu.Unlock()
			return levelLimits(class, l.demand, *l.cfg), l.made
		}}
		s := w.subject(kind, l.cfg.Node)
		s.Gone = func(context.Context) { l.restore(class) }
		l.cfg.Drift.Watch(levelKey(class), s)
	}
}

// restore makes the levels again after one has vanished, together with the cgroups of its pods.
func (l *levels) restore(class corev1.PodQOSClass) {
	l.mu.Lock()
	made := l.made
	l.made = false
	l.mu.Unlock()
	if !made {
		return // they are being removed
	}
	if _, err := l.ensure(class); err != nil {
		l.cfg.Log.Warn("cannot make the cgroups of all pods again, retrying when the next pod starts", "err", err)
	}
}

// remove removes the levels, and then the configured root if it is empty and not the root of the hierarchy. A level
// that still holds a pod is an error.
func (l *levels) remove() error {
	t, err := l.host.open()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made = false
	if l.cfg.Drift != nil {
		for _, class := range classes() {
			l.cfg.Drift.Unwatch(levelKey(class))
		}
	}
	var errs []error
	for _, class := range slices.Backward(classes()) { // the innermost first
		if name := l.name(class); t.Exists(name) {
			errs = append(errs, t.Remove(name))
		}
	}
	if root := l.host.root; len(root) > 0 && t.Exists(root) {
		children, err := t.Children(root)
		if err == nil && len(children) == 0 {
			err = t.Remove(root)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
