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

	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/node/condition"
	"github.com/berth-run/berth/internal/record/event"
)

// Inputs supply the facts each time the status is computed. They must not block. A nil input means that the node has
// no such facts.
type Inputs struct {
	Conditions *condition.Table // never nil
	// IPs returns the machine's addresses, in place of those in Config.
	IPs     func() []netip.Addr
	Devices func() Devices
	Runtime func() Runtime
	Images  func(context.Context) ([]corev1.ContainerImage, error)
	// VolumesInUse returns the attachable volumes in use. known is false until all of them are known.
	VolumesInUse func() (volumes []corev1.UniqueVolumeName, known bool)
}

// Options of an Object.
type Options struct {
	// Client is the client for heartbeats, which has a limit of its own. Watches is for the object's watch, because
	// the client for heartbeats has a short timeout.
	Client, Watches kubernetes.Interface
	Config          Config
	Inputs          Inputs
	// Register creates the object if it does not exist (registerNode). The status is written in either case.
	Register bool
	// Registered is called after the object was created or updated at the start. It is optional.
	Registered func()
	// UpdateEvery is nodeStatusUpdateFrequency, default 10 s; ReportEvery is
	// nodeStatusReportFrequency, default 5 min.
	UpdateEvery, ReportEvery time.Duration
	// Ref names the node in events.
	Ref    corev1.ObjectReference
	Events event.Sink
	Log    *slog.Logger
}

// Object is this node's Node object in the API. It is safe for concurrent use.
type Object struct {
	o    Options
	wake wake.Signal // a fact has changed

	mu       sync.Mutex
	node     *corev1.Node  // the newest received, nil before the first
	gone     bool          // the object was deleted
	received chan struct{} // closed with the first object
	changed  chan struct{} // closed and replaced when node changes
	doubted  bool          // Confirm was called
	asOf     time.Time     // node is at least as new as this; zero: never confirmed

	sending sync.Mutex // held while a status is computed and sent
	report  schedule
}

// schedule says when the status was sent and is due. The holder of sending owns it.
type schedule struct {
	sent      time.Time // zero: never
	delay     time.Duration
	announced bool // the event of the reboot was recorded
	images    []corev1.ContainerImage
}

// New returns an Object without a received Node.
func New(o Options) *Object {
	if o.UpdateEvery <= 0 {
		o.UpdateEvery = 10 * time.Second
	}
	if o.ReportEvery <= 0 {
		o.ReportEvery = 5 * time.Minute
	}
	return &Object{o: o, wake: wake.New(), received: make(chan struct{}), changed: make(chan struct{})}
}

// Node returns the object as last received, also while the API server is away or after the object was deleted. Before
// the first one was received, it returns the object that this node would register. The result is shared and must not
// be changed.
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
func (x *Object) Received() <-chan struct{} { return x.received }

// Changed returns a channel that is closed when Node returns another object than at this call.
func (x *Object) Changed() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.changed
}

// VolumesReported returns the volumes that the API server has accepted as in use. An attachable volume is mounted
// only after it is among them.
func (x *Object) VolumesReported() []corev1.UniqueVolumeName {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.node == nil {
		return nil
	}
	return x.node.Status.VolumesInUse
}

// UpdateSoon computes and sends the status soon, because a fact has changed. Changes of conditions need no call.
func (x *Object) UpdateSoon() { x.wake.Wake() }

// Confirm asks the API server whether Node is the newest. Changed is closed after the answer, even if Node is the
// same.
func (x *Object) Confirm() {
	x.mu.Lock()
	x.doubted = true
	x.mu.Unlock()
	x.UpdateSoon()
}

// AsOf returns a time when Node was certainly the newest. It is zero if Node was never confirmed.
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

// confirm records that Node is at least as new as the answer to a request sent at that time. It closes Changed.
func (x *Object) confirm(requested time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.doubted, x.asOf = false, requested
	close(x.changed)
	x.changed = make(chan struct{})
}

// receive stores an object from the API server. An object that is older than the stored one, or known to be deleted,
// is ignored unless it comes from a list, because a list starts anew.
func (x *Object) receive(n *corev1.Node, list bool) {
	x.mu.Lock()
	was := x.node
	if !list && was != nil && was.UID == n.UID && (x.gone || older(n.ResourceVersion, was.ResourceVersion)) {
		x.mu.Unlock()
		return
	}
	n.ManagedFields = nil
	x.node, x.gone = n, false
	if was == nil {
		close(x.received)
	}
	close(x.changed)
	x.changed = make(chan struct{})
	x.mu.Unlock()

	if was != nil && was.UID != n.UID {
		x.UpdateSoon() // it was created again and has no status yet
	}
	if unschedulable := was != nil && was.Spec.Unschedulable; unschedulable != n.Spec.Unschedulable {
		reason := "NodeSchedulable"
		if n.Spec.Unschedulable {
			reason = "NodeNotSchedulable"
		}
		x.record(reason)
	}
}

// remove records that the object did not exist at a resource version. An empty version stands for now. A list may be
// older than the stored object.
func (x *Object) remove(version string) {
	x.mu.Lock()
	if x.node != nil && version != "" && older(version, x.node.ResourceVersion) {
		x.mu.Unlock()
		return
	}
	known := x.node != nil && !x.gone
	x.gone = x.node != nil
	x.mu.Unlock()
	if known {
		x.o.Log.Warn("the Node object of this node was deleted, the agent registers it again at its next start",
			"node", x.o.Config.Machine.Name)
	}
}

func (x *Object) last() (n *corev1.Node, gone bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.node, x.gone
}

func (x *Object) record(reason string) {
	x.o.Events.Event(x.o.Ref, corev1.EventTypeNormal, reason, "Node %s status is now: %s", x.o.Config.Machine.Name,
		reason)
}

func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// quickFacts returns the facts without the images, which need a call of the runtime.
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
