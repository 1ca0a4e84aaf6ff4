package status

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// row returns a pod as the local API shows it: with its status, and with deletion timestamp and grace period while it
// is being deleted.
func row(p *corev1.Pod, status corev1.PodStatus, stop *pod.Stop) *corev1.Pod {
	row := *p
	row.Status = status
	if stop != nil && stop.Remove && row.DeletionTimestamp == nil {
		row.DeletionTimestamp = &metav1.Time{Time: stop.At}
		grace := row.Spec.TerminationGracePeriodSeconds
		if stop.Grace != nil {
			grace = new(int64(stop.Grace.Seconds()))
		}
		row.DeletionGracePeriodSeconds = grace
	}
	return &row
}

// failures names the containers that made a pod fail, with their exit codes.
func failures(s corev1.PodStatus) string {
	var texts []string
	for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses) {
		if e := c.State.Terminated; e != nil && e.ExitCode != 0 {
			texts = append(texts, fmt.Sprintf("container %s ended with exit code %d", c.Name, e.ExitCode))
		}
	}
	return strings.Join(texts, "; ")
}

// endedForGood says whether a container that may not run again has ended between two statuses. Its status is then the
// only trace of that end once the container is removed.
func endedForGood(p *corev1.Pod, before, now corev1.PodStatus) bool {
	ends := map[string]string{} // container id by name
	for _, s := range before.ContainerStatuses {
		if s.State.Terminated != nil {
			ends[s.Name] = s.State.Terminated.ContainerID
		}
	}
	return slices.ContainsFunc(now.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		if s.State.Terminated == nil || ends[s.Name] == s.State.Terminated.ContainerID {
			return false
		}
		i := slices.IndexFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == s.Name })
		own := i >= 0 && p.Spec.Containers[i].RestartPolicy != nil &&
			*p.Spec.Containers[i].RestartPolicy != corev1.ContainerRestartPolicyAlways
		return own || p.Spec.RestartPolicy != corev1.RestartPolicyAlways
	})
}
