package event

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/pod"
)

// Component is the source of events that nobody but this agent's own commands reads.
const Component = "berth"

// Kubelet is the source of the events of a node of a cluster: field selectors
// (source=kubelet, reportingComponent=kubelet), exporters and alerts know those of a
// node by it, and it is what this agent is to the cluster.
const Kubelet = "kubelet"

// maxMessage is the longest message in bytes, the limit of the events.k8s.io API.
const maxMessage = 1024

// Options configure a Recorder.
type Options struct {
	// Dir holds the journal. It is created when missing. Empty: events are kept
	// in memory only.
	Dir string
	// Component is the events' source. Default: Component.
	Component string
	// Host is the node's name, shown as the events' source.
	Host string
	// Max is how many events are kept. Default: 10,000.
	Max int
	// Delay is how long events are gathered before they are written. Default: 1 s.
	Delay time.Duration
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Log receives what is wrong with the journal. Required when Dir is set.
	Log *slog.Logger
}

// Recorder takes events and keeps the last of them. All methods may be called at
// any time, also before and after Run.
type Recorder struct {
	dir       string
	component string
	host      string
	max       int
	delay     time.Duration
	now       func() time.Time
	log       *slog.Logger

	dirty chan struct{} // wakes Run

	mu       sync.Mutex
	ring     *ring
	watchers map[chan struct{}]struct{}
}

// New returns an empty Recorder; Run reads what an earlier one kept.
func New(o Options) *Recorder {
	if o.Max <= 0 {
		o.Max = 10_000
	}
	if o.Delay <= 0 {
		o.Delay = time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Recorder{
		dir:       o.Dir,
		component: cmp.Or(o.Component, Component),
		host:      o.Host,
		max:       o.Max,
		delay:     o.Delay,
		now:       o.Now,
		log:       o.Log,
		dirty:     make(chan struct{}, 1),
		ring:      newRing(o.Max),
		watchers:  map[chan struct{}]struct{}{},
	}
}

// Event records that something happened to ref. eventType is corev1.EventTypeNormal
// or EventTypeWarning. Without args, format is the message as it stands. It does no I/O.
func (r *Recorder) Event(ref corev1.ObjectReference, eventType, reason, format string, args ...any) {
	message := format
	if len(args) > 0 {
		message = fmt.Sprintf(format, args...)
	}
	message = clean(message)
	// The state of the object is not part of who it is: it would make every update a new object.
	ref.ResourceVersion = ""

	r.mu.Lock()
	r.ring.add(groupKey{ref: ref, eventType: eventType, reason: reason}, message, r.now())
	for w := range r.watchers {
		wake(w)
	}
	r.mu.Unlock()
	wake(r.dirty)
}

// clean cuts a message to maxMessage bytes and makes it valid UTF-8.
func clean(message string) string {
	if len(message) > maxMessage {
		const mark = "..."
		cut := maxMessage - len(mark)
		for cut > 0 && !utf8.RuneStart(message[cut]) {
			cut--
		}
		message = message[:cut] + mark
	}
	if utf8.ValidString(message) {
		return message
	}
	return strings.ToValidUTF8(message, "\uFFFD")
}

// wake makes the next receive from c succeed. c has room for one.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// PodRef names a pod in an event.
func PodRef(p *corev1.Pod) corev1.ObjectReference {
	return corev1.ObjectReference{
		Kind:       "Pod",
		APIVersion: "v1",
		Namespace:  p.Namespace,
		Name:       p.Name,
		UID:        p.UID,
	}
}

// NodeRef names a node in an event. Its UID is its name, as in a kubelet's events.
func NodeRef(name string) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: name, UID: types.UID(name)}
}

// ContainerRef names a container of a pod in an event: the pod with the
// container's field path, e.g. "spec.containers{app}".
func ContainerRef(p *corev1.Pod, c pod.Container) corev1.ObjectReference {
	ref := PodRef(p)
	ref.FieldPath = c.FieldPath()
	return ref
}
