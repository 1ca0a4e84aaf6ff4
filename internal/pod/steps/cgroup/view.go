package cgroup

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/clock"
	"github.com/berth-run/berth/internal/model/pod"
)

// View is the observed state of pods as workers see it. A sandbox whose cgroup has vanished is not ready, whatever the
// runtime reports. The plan then stops the pod's containers and makes the pod again.
type View struct {
	Runtime Observer
	Cgroups *Cgroups
	Pods    Pods
}

// Observer shows the sandboxes and containers of a pod in the runtime.
type Observer interface {
	Observed(types.UID) *pod.Observed
	Refresh(context.Context, types.UID) error
}

// Pods are the pods of the node.
type Pods interface {
	// Syncing returns a pod that is not ending.
	Syncing(types.UID) (*corev1.Pod, bool)
}

// Observed returns the last known state of a pod in the runtime. It is nil if the runtime does not know the pod.
func (v View) Observed(uid types.UID) *pod.Observed {
	o := v.Runtime.Observed(uid)
	lost := v.Cgroups.Vanished(uid)
	if o == nil || lost.IsZero() {
		return o
	}
	if _, ok := v.Pods.Syncing(uid); !ok {
		return o // a pod that ends is ended with all its sandboxes
	}
	return withoutSandboxesBefore(o, lost, time.Now())
}

// Refresh reads the runtime's state of a pod again before it returns.
func (v View) Refresh(ctx context.Context, uid types.UID) error { return v.Runtime.Refresh(ctx, uid) }

// withoutSandboxesBefore returns a copy of o. Sandboxes that were created before the time lost are not ready there. The
// comparison holds even if the machine's clock was set back since (clock.After).
func withoutSandboxesBefore(o *pod.Observed, lost, now time.Time) *pod.Observed {
	c := *o
	c.Sandboxes = slices.Clone(o.Sandboxes)
	for i := range c.Sandboxes {
		s := &c.Sandboxes[i]
		s.Ready = s.Ready && clock.After(s.CreatedAt, lost, now)
	}
	return &c
}
