package test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/model/pod"
)

// awaitConverged waits until the API server, the node and its runtime tell the
// same: of the same pods, with the same statuses, each with one sandbox at most and
// each of its containers once, as the status shows it.
func (h *harness) awaitConverged(ts *testscript.TestScript, _ []string) {
	eventually(ts, func() (bool, any) {
		differences, err := h.differences(ts)
		if err != nil {
			return false, err
		}
		return len(differences) == 0, strings.Join(differences, "\n")
	})
}

func (h *harness) differences(ts *testscript.TestScript) ([]string, error) {
	ctx := context.Background()
	told, err := nodeOf(ts).client.CoreV1().Pods("").List(ctx,
		metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodeName})
	if err != nil {
		return nil, err
	}
	known, err := clientOf(ts).Pods(ctx, client.Select{})
	if err != nil {
		return nil, err
	}
	here := map[types.UID]*corev1.Pod{}
	for i := range known.Items {
		here[known.Items[i].UID] = &known.Items[i]
	}
	runtime, done := h.dial(ts)
	defer done()
	containers, err := runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	sandboxes, err := runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, err
	}

	var all []string
	running := map[string]string{} // the ids of what the statuses show to run, and what it is
	for _, p := range told.Items {
		uid := p.UID
		if hash, isMirror := p.Annotations[corev1.MirrorPodAnnotationKey]; isMirror {
			uid = types.UID(hash)
		}
		local, ok := here[uid]
		if !ok {
			all = append(all, p.Name+": the node does not have it")
			continue
		}
		delete(here, uid)
		if diff := cmp.Diff(ours(local.Status), ours(p.Status)); diff != "" {
			all = append(all, fmt.Sprintf("%s: the node's status (-) and the API's (+):\n%s", p.Name, diff))
		}
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses,
			p.Status.EphemeralContainerStatuses) {
			if c.State.Running != nil {
				_, id, _ := strings.Cut(c.ContainerID, "://")
				running[id] = fmt.Sprintf("%s/%s attempt %d", uid, c.Name, c.RestartCount)
			}
		}
	}
	for _, p := range here {
		all = append(all, p.Name+": the API does not have it")
	}
	runs := map[string]string{}
	for _, c := range containers.Containers {
		if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			runs[c.Id] = fmt.Sprintf("%s/%s attempt %d", c.Labels[pod.LabelPodUID], c.Metadata.Name, c.Metadata.Attempt)
		}
	}
	if diff := cmp.Diff(running, runs); diff != "" {
		all = append(all, "containers that run by the API's statuses (-) and in the runtime (+):\n"+diff)
	}
	ready := map[string]int{}
	for _, s := range sandboxes.Items {
		if s.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			ready[s.Metadata.Name+" "+s.Metadata.Uid]++
		}
	}
	maps.DeleteFunc(ready, func(_ string, n int) bool { return n == 1 })
	if len(ready) > 0 {
		all = append(all, fmt.Sprintf("more than one sandbox: %v", ready))
	}
	return all, nil
}

// ours is what a node writes of a status, in an order. A change that is over before
// it could be told leaves the time of the one before it.
func ours(s corev1.PodStatus) corev1.PodStatus {
	s = *s.DeepCopy()
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled
	})
	for i := range s.Conditions {
		s.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	slices.SortFunc(s.Conditions, func(a, b corev1.PodCondition) int {
		return strings.Compare(string(a.Type), string(b.Type))
	})
	return s
}
