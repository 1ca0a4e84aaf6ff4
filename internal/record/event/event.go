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

	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/pod"
)

// Component is the source of events in an agent without a cluster, where only its own commands read them.
const Component = "berth"

// Kubelet is the source of events on a node of a cluster. Field selectors (source=kubelet, reportingComponent=kubelet),
// exporters and alerts find a node's events by this name.
const Kubelet = "kubelet"

// maxMessage is the longest message in bytes, the limit of the events.k8s.io API.
const maxMessage = 1024

// Options configures a Recorder.
type Options struct {
	// Dir is the directory of the journal. It is created if missing. If empty, events are held in memory only.
	Dir string
	// Component is the source of the events. Default: Component.
	Component string
	// Host is the node's name in the source of the events.
	Host string
	// Max is how many events are kept. Default: 10,000.
	Max int
	// Delay is how long events are collected before they are written. Default: 1 s.
	Delay time.Duration
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Log receives problems with the journal. Required if Dir is set.
	Log *slog.Logger
}

// Recorder records events and keeps the last ones. All methods may be called at any time, even before and after Run.
type Recorder struct {
	dir       string
	component string
	host      string
	max       int
	delay     time.Duration
	now       func() time.Time
	log       *slog.Logger

	dirty wake.Signal // wakes Run

	mu       sync.Mutex
	ring     *ring
	watchers map[wake.Signal]struct{}
}

// New returns an empty Recorder. Run reads the events of the previous agent.
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
		dirty:     wake.New(),
		ring:      newRing(o.Max),
		watchers:  map[wake.Signal]struct{}{},
	}
}

// Event records that something happened to ref. eventType is corev1.EventTypeNormal
// or EventTypeWarning. Without args, format is the message as it stands. It does no I/O.
func (r *Recorder) Event(ref corev1.ObjectReference, eventType, reason, format string, args ...any) {
	message := format
	if len(args) > 0 {
		message = fmt.Sprintf(format, args...)
	}
	r.Annotated(ref, nil, eventType, reason, message)
}

// Annotated implements Annotator. It does no I/O.
func (r *Recorder) Annotated(ref corev1.ObjectReference, annotations map[string]string, eventType, reason,
	message string) {
	message = clean(message)
	// The version of the object is not part of its identity: otherwise every update would look like a new object.
	ref.ResourceVersion = ""

	r.mu.Lock()
	r.ring.add(groupKey{ref: ref, eventType: eventType, reason: reason}, message, annotations, r.now())
	for w := range r.watchers {
		w.Wake()
	}
	r.mu.Unlock()
	r.dirty.Wake()
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

// NodeRef names a node in an event. Its UID is the node's name, as in a kubelet's events.
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
