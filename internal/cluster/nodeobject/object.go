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

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/node/condition"
	"github.com/berth-run/berth/internal/record/event"
)

// Inputs supplies the facts that change while the agent runs. An Object reads them each time it computes the status.
// Only Images may block.
type Inputs interface {
	// IPs returns the machine's addresses, in place of those in Config.
	IPs() []netip.Addr
	Devices() Devices
	Runtime() Runtime
	Images(ctx context.Context) ([]corev1.ContainerImage, error)
	// VolumesInUse returns the attachable volumes in use. known is false until all of them are known.
	VolumesInUse() (volumes []corev1.UniqueVolumeName, known bool)
}

// Options of an Object.
type Options struct {
	// Client is the client for heartbeats, which has a limit of its own. Watches is for the object's watch, because
	// the client for heartbeats has a short timeout.
	Client, Watches kubernetes.Interface
	Config          Config
	Inputs          Inputs
	Conditions      *condition.Table
	// Nodes gets the object under its name each time it is received. The Object is the only writer. The last version
	// stays after the object was deleted.
	Nodes *store.Table[string, *corev1.Node]
	// FactsChanged wakes the Object, to send its status soon because a fact has changed. Changes of conditions do so
	// by themselves.
	FactsChanged wake.Signal
	// Register creates the object if it does not exist (registerNode). The status is written in either case.
	Register bool
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
	o          Options
	registered chan struct{} // see Registered

	mu       sync.Mutex     // held for each write to o.Nodes
	gone     bool           // the object was deleted
	received chan struct{}  // closed with the first object
	changed  wake.Broadcast // of the object
	doubted  bool           // Confirm was called
	asOf     time.Time      // node is at least as new as this; zero: never confirmed

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
	return &Object{
		o: o, registered: make(chan struct{}), received: make(chan struct{}),
	}
}

// Node returns the object as last received, also while the API server is away or after the object was deleted. Before
// the first one was received, it returns the object that this node would register. The result is shared and must not
// be changed.
func (x *Object) Node() *corev1.Node {
	n := x.newest()
	if n == nil {
		n = Build(x.quickFacts(), time.Now())
	}
	return n
}

// newest returns the object as last received, or nil before the first.
func (x *Object) newest() *corev1.Node {
	n, _ := x.o.Nodes.Get(x.o.Config.Machine.Name)
	return n
}

// Registered is closed after the object was created or updated at the start. It is never closed without
// Options.Register.
func (x *Object) Registered() <-chan struct{} { return x.registered }

// Received is closed when the object was received from the API server for the first time.
func (x *Object) Received() <-chan struct{} { return x.received }

// Changed returns a channel that is closed when Node returns another object than at this call.
func (x *Object) Changed() <-chan struct{} { return x.changed.C() }

// UpdateSoon computes and sends the status soon, because a fact has changed. Changes of conditions need no call.
func (x *Object) UpdateSoon() { x.o.FactsChanged.Wake() }

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
	x.changed.Wake()
}

// receive stores an object from the API server. An object from a list always counts, because a list starts anew. Any
// other object is ignored if it is older than the stored one or known to be deleted.
func (x *Object) receive(n *corev1.Node, list bool) {
	x.mu.Lock()
	was := x.newest()
	if !list && was != nil && was.UID == n.UID && (x.gone || older(n.ResourceVersion, was.ResourceVersion)) {
		x.mu.Unlock()
		return
	}
	n.ManagedFields = nil
	x.o.Nodes.Put(x.o.Config.Machine.Name, n)
	x.gone = false
	if was == nil {
		close(x.received)
	}
	x.changed.Wake()
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
	was := x.newest()
	if was != nil && version != "" && older(version, was.ResourceVersion) {
		x.mu.Unlock()
		return
	}
	known := was != nil && !x.gone
	x.gone = was != nil
	x.mu.Unlock()
	if known {
		x.o.Log.Warn("the Node object of this node was deleted, the agent registers it again at its next start",
			"node", x.o.Config.Machine.Name)
	}
}

func (x *Object) last() (n *corev1.Node, gone bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.newest(), x.gone
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
	f := Facts{
		Config: x.o.Config, Conditions: x.o.Conditions.Facts(), Devices: in.Devices(), Runtime: in.Runtime(),
	}
	f.Config.Machine.IPs = in.IPs()
	f.VolumesInUse, f.VolumesKnown = in.VolumesInUse()
	return f
}
