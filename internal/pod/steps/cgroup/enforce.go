package cgroup

import (
	"fmt"
	"path"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/pod/steps/cgroup/hierarchy"
	"github.com/berth-run/berth/internal/record/event"
)

// Reasons of events about the node. They are the kubelet's.
const (
	NodeAllocatableEnforced          = "NodeAllocatableEnforced"
	FailedNodeAllocatableEnforcement = "FailedNodeAllocatableEnforcement"
)

// Reserved is an existing cgroup beside the pods', such as /system.slice, that is limited to the resources reserved for
// it. This package never makes it.
type Reserved struct {
	// For names the reservation in events.
	For string
	// Path is the cgroup's path in cgroupfs form, or the path of a slice.
	Path    string
	Amounts corev1.ResourceList
	// Compressible limits the CPU only.
	Compressible bool
}

// reservations sets the limits of the reserved cgroups.
type reservations struct {
	cfg      *Config
	host     *host
	outcomes *outcomes
}

// enforce sets the limits of every reserved cgroup that has none yet. It returns whether one failed.
func (x *reservations) enforce() (failed bool) {
	for _, r := range x.cfg.Reserved {
		if x.outcomes.succeeded(r.For) {
			continue
		}
		if err := x.set(r); err != nil {
			failed = true
			x.outcomes.fail(r.For, fmt.Sprintf("Failed to enforce %s Cgroup Limits on %q: %v", r.For, r.Path, err))
			continue
		}
		x.outcomes.succeed(r.For, "Updated limits on %s cgroup %s", strings.ToLower(r.For), r.Path)
	}
	return failed
}

// set sets the limits of one reserved cgroup.
func (x *reservations) set(r Reserved) error {
	t, err := x.host.open()
	if err != nil {
		return err
	}
	name := parseExisting(r.Path, x.cfg.Driver)
	l := reservedLimits(r, x.cfg.Options)
	g, err := t.Group(name)
	if err != nil {
		return err
	}
	g = g.Present()
	for controller, needed := range map[string]bool{"cpu": l.Shares > 0, "memory": l.Memory > 0, "pids": l.Pids > 0} {
		if _, ok := g.Dir(controller); needed && t.Has(controller) && !ok {
			return fmt.Errorf(
				"the cgroup does not exist in the controller %s; next: make it, or change the configuration",
				controller)
		}
	}
	if err := t.Set(name, l); err != nil {
		return err
	}
	if x.cfg.Drift != nil {
		w := wanted{t: t, name: name, want: func() (hierarchy.Limits, bool) { return l, true }}
		s := w.subject("node", x.cfg.Node)
		s.Group = g
		x.cfg.Drift.Watch("reserved/"+name.Cgroupfs(), s)
	}
	return nil
}

// outcomes remembers how the last attempt to set the limits of each cgroup ended, and reports it in an event of the
// node. A repeated failure is reported once.
type outcomes struct {
	events event.Sink
	node   corev1.ObjectReference

	mu   sync.Mutex
	last map[string]string // by cgroup: message of the failure, or "" after a success
}

func (o *outcomes) fail(key, message string) {
	o.mu.Lock()
	repeated := o.last[key] == message
	o.last[key] = message
	o.mu.Unlock()
	if !repeated {
		o.events.Event(o.node, corev1.EventTypeWarning, FailedNodeAllocatableEnforcement, "%s", message)
	}
}

func (o *outcomes) succeed(key, format string, args ...any) {
	o.mu.Lock()
	o.last[key] = ""
	o.mu.Unlock()
	o.events.Event(o.node, corev1.EventTypeNormal, NodeAllocatableEnforced, format, args...)
}

func (o *outcomes) succeeded(key string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	message, tried := o.last[key]
	return tried && message == ""
}

func (o *outcomes) failed(key string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last[key] != ""
}

// parseExisting reads the path of a cgroup that another program has made. With systemd, the parts of a slice's name are
// the slices around it.
func parseExisting(p string, driver hierarchy.Driver) hierarchy.Name {
	base, slice := strings.CutSuffix(path.Base(p), ".slice")
	if driver != hierarchy.Systemd || !slice {
		return hierarchy.ParseName(p)
	}
	var n hierarchy.Name
	for part := range strings.SplitSeq(base, "-") {
		n = append(n, strings.ReplaceAll(part, "_", "-"))
	}
	return n
}
