package nodeobject

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/internal/node/condition"
)

// events is where users are told.
type events interface {
	Event(ref corev1.ObjectReference, eventType, reason, format string, args ...any)
}

// Inputs are asked each time the status is computed, and have to answer at once.
// Of what is nil the node has none.
type Inputs struct {
	Conditions *condition.Table // never nil
	// IPs are the machine's instead of those of Config.
	IPs     func() []netip.Addr
	Devices func() Devices
	Runtime func() Runtime
	Images  func(context.Context) ([]corev1.ContainerImage, error)
	// VolumesInUse are the attachable volumes in use, and whether they are all
	// known yet.
	VolumesInUse func() (volumes []corev1.UniqueVolumeName, known bool)
}

// Options of an Object.
type Options struct {
	// Client is the one for heartbeats: its budget is not shared. Watches is for the object's watch: a client
	// for heartbeats gives up what takes longer.
	Client, Watches kubernetes.Interface
	Config          Config
	Inputs          Inputs
	// Register is registerNode: whether the object is made. Its status is written
	// in any case.
	Register bool
	// Registered is told that the object is made or brought up to date. Optional.
	Registered func()
	// UpdateEvery is nodeStatusUpdateFrequency, default 10 s; ReportEvery is
	// nodeStatusReportFrequency, default 5 min.
	UpdateEvery, ReportEvery time.Duration
	// Ref names the node in events.
	Ref    corev1.ObjectReference
	Events events
	Log    *slog.Logger
}

// Object is this node's object in the API. It is safe for concurrent use.
type Object struct {
	o    Options
	poke chan struct{}

	mu      sync.Mutex
	node    *corev1.Node // the newest heard of, nil before
	gone    bool         // somebody deleted it
	heard   chan struct{}
	changed chan struct{} // closed and replaced when node is another
	doubted bool          // somebody asked for a confirmation
	asOf    time.Time     // node is at least as new as this; zero: nobody asked

	sending sync.Mutex // one status at a time
	report  schedule
}

// schedule is when the status was and is to be sent; of the holder of sending.
type schedule struct {
	sent      time.Time // zero: never
	delay     time.Duration
	announced bool // the reboot
	images    []corev1.ContainerImage
}

// New returns an object that nothing was heard of.
func New(o Options) *Object {
	if o.UpdateEvery <= 0 {
		o.UpdateEvery = 10 * time.Second
	}
	if o.ReportEvery <= 0 {
		o.ReportEvery = 5 * time.Minute
	}
	return &Object{o: o, poke: make(chan struct{}, 1), heard: make(chan struct{}), changed: make(chan struct{})}
}

// Node is the object as it was last heard of, also while the API server is away
// or after somebody deleted it. Before anything was heard it is what this node
// would register. It is shared: do not change it.
func (x *Object) Node() *corev1.Node {
	x.mu.Lock()
	n := x.node
	x.mu.Unlock()
	if n == nil {
		n = Build(x.quickFacts(), time.Now())
	}
	return n
}

// Received is closed when the object was received from the API server for the first time.
func (x *Object) Received() <-chan struct{} { return x.heard }

// Changed is closed when Node is another than at the call.
func (x *Object) Changed() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.changed
}

// VolumesReported are the volumes that the API server was told to be in use: an
// attachable volume is mounted only when it is one of them.
func (x *Object) VolumesReported() []corev1.UniqueVolumeName {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.node == nil {
		return nil
	}
	return x.node.Status.VolumesInUse
}

// UpdateSoon computes and sends the status soon, because a fact has changed. Changes of conditions need no call.
func (x *Object) UpdateSoon() {
	select {
	case x.poke <- struct{}{}:
	default:
	}
}

// Confirm has the API server asked whether Node is the newest. When it has
// answered, Changed is closed also if it is.
func (x *Object) Confirm() {
	x.mu.Lock()
	x.doubted = true
	x.mu.Unlock()
	x.UpdateSoon()
}

// AsOf is a time at which Node was the newest; zero: it was never confirmed.
func (x *Object) AsOf() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.asOf
}

func (x *Object) isDoubted() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.doubted
}

// confirm takes that Node is what the API server answered with, or newer. Who asks
// after the question was sent, asks again.
func (x *Object) confirm(asked time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.doubted, x.asOf = false, asked
	close(x.changed)
	x.changed = make(chan struct{})
}

// hear takes an object that the API server sent. One older than what is known
// already, or that is known to be no more, counts only when it comes with a list, which starts anew.
func (x *Object) hear(n *corev1.Node, list bool) {
	x.mu.Lock()
	was := x.node
	if !list && was != nil && was.UID == n.UID && (x.gone || older(n.ResourceVersion, was.ResourceVersion)) {
		x.mu.Unlock()
		return
	}
	n.ManagedFields = nil
	x.node, x.gone = n, false
	if was == nil {
		close(x.heard)
	}
	close(x.changed)
	x.changed = make(chan struct{})
	x.mu.Unlock()

	if was != nil && was.UID != n.UID {
		x.UpdateSoon() // made anew: it has no status yet
	}
	if unschedulable := was != nil && was.Spec.Unschedulable; unschedulable != n.Spec.Unschedulable {
		reason := "NodeSchedulable"
		if n.Spec.Unschedulable {
			reason = "NodeNotSchedulable"
		}
		x.tell(reason)
	}
}

// lose takes that the object was no more at a resource version; "" is now. A list may
// be older than the object.
func (x *Object) lose(version string) {
	x.mu.Lock()
	if x.node != nil && version != "" && older(version, x.node.ResourceVersion) {
		x.mu.Unlock()
		return
	}
	known := x.node != nil && !x.gone
	x.gone = x.node != nil
	x.mu.Unlock()
	if known {
		x.o.Log.Warn("The Node object of this node was deleted: it is registered again when the agent starts anew",
			"node", x.o.Config.Machine.Name)
	}
}

func (x *Object) last() (n *corev1.Node, gone bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.node, x.gone
}

func (x *Object) tell(reason string) {
	x.o.Events.Event(x.o.Ref, corev1.EventTypeNormal, reason, "Node %s status is now: %s", x.o.Config.Machine.Name,
		reason)
}

func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// quickFacts are the facts without the images.
func (x *Object) quickFacts() Facts {
	in := x.o.Inputs
	f := Facts{Config: x.o.Config, Conditions: in.Conditions.Facts(), VolumesKnown: in.VolumesInUse == nil}
	if in.IPs != nil {
		f.Config.Machine.IPs = in.IPs()
	}
	if in.Devices != nil {
		f.Devices = in.Devices()
	}
	if in.Runtime != nil {
		f.Runtime = in.Runtime()
	}
	if in.VolumesInUse != nil {
		f.VolumesInUse, f.VolumesKnown = in.VolumesInUse()
	}
	return f
}
