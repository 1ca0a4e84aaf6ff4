package stop

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/worker"
	"github.com/berth-run/berth/internal/record/event"
)

// preempted is what a pod is told that ends for a critical one, the kubelet's words.
const preempted = "Preempted in order to admit critical pod"

// Preempt ends a pod in its own grace so that a critical one has room, and
// leaves it visible as Failed.
func Preempt(pods *fleet.Fleet, events *event.Recorder, uid types.UID) {
	m, ok := pods.Member(uid)
	if !ok || m.State.Stage != worker.Syncing {
		return // it ends already
	}
	events.Event(event.PodRef(m.Pod.Pod), corev1.EventTypeWarning, reason.Preempting, preempted)
	pods.Stop(uid, pod.Stop{Reason: pod.StopPreempting, Message: preempted, At: time.Now()})
}

// evictionGrace is what a pod gets that is evicted for what it uses, as under
// the kubelet.
const evictionGrace = time.Second

// Evict ends a pod that uses more than it may, and leaves it visible as Failed.
func Evict(pods *fleet.Fleet, events *event.Recorder, p *corev1.Pod, message string) {
	m, ok := pods.Member(p.UID)
	if !ok || m.State.Stage != worker.Syncing {
		return // it ends already
	}
	events.Event(event.PodRef(p), corev1.EventTypeWarning, reason.Evicted, "%s", message)
	pods.Stop(p.UID, pod.Stop{Reason: pod.StopEvicted, Message: message, Grace: new(evictionGrace), At: time.Now()})
}
