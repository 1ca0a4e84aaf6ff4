package container

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/model/pod"
)

// over reports whether the selected pods write nothing more: there are some, and each has ended by itself. A pod that
// is being deleted does not count, because another one may replace it.
func over(pods []*corev1.Pod) bool {
	for _, p := range pods {
		if !pod.Ended(p.Status.Phase) || p.DeletionTimestamp != nil {
			return false
		}
	}
	return len(pods) > 0
}

// startedSince reports whether the present instance of a container started at began or later. The times of the
// Kubernetes API are whole seconds, so an instance of the same second counts.
func startedSince(st corev1.ContainerStatus, began time.Time) bool {
	began = began.Truncate(time.Second)
	switch {
	case st.State.Running != nil:
		return !st.State.Running.StartedAt.Time.Before(began)
	case st.State.Terminated != nil:
		return !st.State.Terminated.StartedAt.Time.Before(began)
	}
	return false
}

// whole returns the options for an instance that started while the command ran: all of its lines are new.
func whole(o client.LogOptions) client.LogOptions {
	o.TailLines, o.SinceSeconds, o.SinceTime = nil, nil, nil
	return o
}
