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

// awaitConverged waits until the API server, the node and its runtime agree: on the pods, on their statuses, and on
// the running containers. Each container runs once, and a pod has at most one ready sandbox.
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
	reported, err := nodeOf(ts).client.CoreV1().Pods("").List(ctx,
		metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodeName})
	if err != nil {
		return nil, err
	}
	local, err := clientOf(ts).Pods(ctx, client.Select{})
	if err != nil {
		return nil, err
	}
	unmatched := map[types.UID]*corev1.Pod{} // the node's pods that the API server does not have
	for i := range local.Items {
		unmatched[local.Items[i].UID] = &local.Items[i]
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
	wanted := map[string]string{} // by ID, the containers that run according to the statuses
	for _, p := range reported.Items {
		uid := p.UID
		if hash, isMirror := p.Annotations[corev1.MirrorPodAnnotationKey]; isMirror {
			uid = types.UID(hash)
		}
		onNode, ok := unmatched[uid]
		if !ok {
			all = append(all, p.Name+": the node does not have it")
			continue
		}
		delete(unmatched, uid)
		if diff := cmp.Diff(comparableStatus(onNode.Status), comparableStatus(p.Status)); diff != "" {
			all = append(all, fmt.Sprintf("%s: status on the node (-) and in the API (+):\n%s", p.Name, diff))
		}
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses,
			p.Status.EphemeralContainerStatuses) {
			if c.State.Running != nil {
				_, id, _ := strings.Cut(c.ContainerID, "://")
				wanted[id] = fmt.Sprintf("%s/%s attempt %d", uid, c.Name, c.RestartCount)
			}
		}
	}
	for _, p := range unmatched {
		all = append(all, p.Name+": the API does not have it")
	}
	running := map[string]string{}
	for _, c := range containers.Containers {
		if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			running[c.Id] = fmt.Sprintf("%s/%s attempt %d", c.Labels[pod.LabelPodUID], c.Metadata.Name,
				c.Metadata.Attempt)
		}
	}
	if diff := cmp.Diff(wanted, running); diff != "" {
		all = append(all, "containers that run according to the API's statuses (-) and in the runtime (+):\n"+diff)
	}
	ready := map[string]int{}
	for _, s := range sandboxes.Items {
		if s.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			ready[s.Metadata.Name+" "+s.Metadata.Uid]++
		}
	}
	maps.DeleteFunc(ready, func(_ string, n int) bool { return n == 1 })
	if len(ready) > 0 {
		all = append(all, fmt.Sprintf("pods with more than one ready sandbox: %v", ready))
	}
	return all, nil
}

// comparableStatus is the part of a status that a node writes, with sorted conditions. It has no transition times: if a
// condition changes back before the node could report it, the API server keeps the earlier time.
func comparableStatus(s corev1.PodStatus) corev1.PodStatus {
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
