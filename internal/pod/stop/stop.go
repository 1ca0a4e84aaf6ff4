package stop

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/record/event"
)

// preempted is the message of a pod that ends for a critical one, in the kubelet's words.
const preempted = "Preempted in order to admit critical pod"

// evictionGrace is the time between the stop signal and the kill for a pod that is evicted because it used more than
// its limit, as under the kubelet.
const evictionGrace = time.Second

// Pods ends pods of a fleet for the node's sake, and records an event for each.
type Pods struct {
	Fleet  *fleet.Fleet
	Events event.Annotator
}

// Preempt ends a pod within its own grace period to make room for a critical pod. The pod stays visible as Failed. It
// does nothing to a pod that ends already.
func (p Pods) Preempt(uid types.UID) {
	if stopped, ok := p.Fleet.Syncing(uid); ok {
		p.Events.Event(event.PodRef(stopped), corev1.EventTypeWarning, reason.Preempting, preempted)
		p.Fleet.Stop(uid, pod.Stop{Reason: pod.StopPreempting, Message: preempted, At: time.Now()})
	}
}

// Evict ends a pod that uses more than its limit. The pod stays visible as Failed. To a pod that ends already it does
// nothing and returns false.
func (p Pods) Evict(evicted *corev1.Pod, message string) bool {
	_, ok := p.Fleet.Syncing(evicted.UID)
	if ok {
		p.EvictFor(evicted, message, nil, evictionGrace)
	}
	return ok
}

// EvictFor ends a pod because the node is short of a resource. The pod stays visible as Failed. A pod that ends already
// keeps its reason, and gets at most this grace period.
func (p Pods) EvictFor(evicted *corev1.Pod, message string, annotations map[string]string, grace time.Duration) {
	p.Fleet.Stop(evicted.UID, pod.Stop{Reason: pod.StopEvicted, Message: message, Grace: &grace, Exact: true,
		At: time.Now()})
	p.Events.Annotated(event.PodRef(evicted), annotations, corev1.EventTypeWarning, reason.Evicted, message)
}

// Reject ends a pod that was admitted but turns out to lack something it needs. It ends at once and is Failed with the
// reason of the rejection.
func (p Pods) Reject(uid types.UID, why, message string) {
	p.Fleet.Stop(uid, pod.Stop{Reason: pod.StopReason(why), Message: "Pod was rejected: " + message,
		Grace: new(time.Duration(0)), At: time.Now()})
}
