package agent

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/event"
	"github.com/berth-run/berth/internal/fleet"
	"github.com/berth-run/berth/internal/pod"
	"github.com/berth-run/berth/internal/reason"
	"github.com/berth-run/berth/internal/worker"
)

// preempted is what a pod is told that ends for a critical one, the kubelet's words.
const preempted = "Preempted in order to admit critical pod"

// preempt ends a pod in its own grace so that a critical one has room, and
// leaves it visible as Failed.
func preempt(pods *fleet.Fleet, events *event.Recorder, uid types.UID) {
	m, ok := pods.Member(uid)
	if !ok || m.State.Stage != worker.Syncing {
		return // it ends already
	}
	events.Event(event.PodRef(m.Pod.Pod), corev1.EventTypeWarning, reason.Preempting, preempted)
	pods.Stop(uid, pod.Stop{Reason: reason.Preempting, Message: preempted, At: time.Now()})
}
