package nodeobject

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

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
	// Latest receives the object.
	Latest *Latest
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
	*Latest
	o          Options
	registered chan struct{} // see Registered

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
	return &Object{Latest: o.Latest, o: o, registered: make(chan struct{})}
}

// Node returns the object as last received, also while the API server is away or after the object was deleted. Before
// the first one was received, it returns the object that this node would register. The result is shared and must not
// be changed.
func (x *Object) Node() *corev1.Node {
	n := x.Newest()
	if n == nil {
		n = Build(x.quickFacts(), time.Now())
	}
	return n
}

// Registered is closed after the object was created or updated at the start. It is never closed without
// Options.Register.
func (x *Object) Registered() <-chan struct{} { return x.registered }

// receive stores an object from the API server, and records an event when it has become schedulable or unschedulable.
func (x *Object) receive(n *corev1.Node, list bool) {
	was, stored := x.put(n, list)
	if !stored {
		return
	}
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

// remove records that the object did not exist at a resource version; see end for an empty one.
func (x *Object) remove(version string) {
	if x.end(version) {
		x.o.Log.Warn("the Node object of this node was deleted, the agent registers it again at its next start",
			"node", x.o.Config.Machine.Name)
	}
}

func (x *Object) record(reason string) {
	x.o.Events.Event(x.o.Ref, corev1.EventTypeNormal, reason, "Node %s status is now: %s", x.o.Config.Machine.Name,
		reason)
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
