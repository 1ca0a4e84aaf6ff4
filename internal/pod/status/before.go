package status

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/steps/probe"
)

// Before gives access to the statuses that were reported before this agent started: by an earlier agent, or by the
// kubelet that this agent replaces.
type Before struct {
	Record  *Record
	Desired *store.Table[types.UID, *pod.Pod]
}

// Ready returns the probe results that were last reported for a running container. ok is false if there are none.
func (b Before) Ready(uid types.UID, containerID string) (ready probe.Ready, ok bool) {
	reported := []corev1.PodStatus{b.Record.Last(uid)}
	if p, ok := b.Desired.Get(uid); ok && p.Source == pod.SourceAPI {
		reported = append(reported, p.Status)
	}
	for _, s := range reported {
		for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses) {
			if _, id, _ := strings.Cut(c.ContainerID, "://"); id == containerID && c.State.Running != nil {
				return probe.Ready{Started: c.Started != nil && *c.Started, Ready: c.Ready}, true
			}
		}
	}
	return probe.Ready{}, false
}
