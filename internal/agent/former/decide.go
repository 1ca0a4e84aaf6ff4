package former

import (
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// owned returns the sandboxes of this root directory's pods among all sandboxes of the runtime, and all of these pods,
// sorted. left are the pods that have something on disk or on the machine. A shared runtime may have pods of other
// programs, so there only the sandboxes of these pods are owned. A sandbox without a UID has no pod: a client of the
// embedded runtime may have made it.
func owned(all []*runtimeapi.PodSandbox, left []types.UID, shared bool) (boxes []*runtimeapi.PodSandbox,
	pods []types.UID) {
	pods = slices.Clone(left)
	for _, box := range all {
		uid := types.UID(box.Labels[pod.LabelPodUID])
		if shared && !slices.Contains(left, uid) {
			continue
		}
		boxes = append(boxes, box)
		if uid != "" {
			pods = append(pods, uid)
		}
	}
	slices.Sort(pods)
	return boxes, slices.Compact(pods)
}

// defaultGrace is terminationGracePeriodSeconds of a container that does not have it.
const defaultGrace = 30

// graceOf returns the grace period of a container in seconds, and at most the whole seconds of most.
func graceOf(c *runtimeapi.Container, most time.Duration) int64 {
	grace, err := strconv.ParseInt(c.GetAnnotations()[pod.AnnotationTerminationGrace], 10, 64)
	if err != nil {
		grace = defaultGrace
	}
	return max(0, min(grace, int64(most/time.Second)))
}
