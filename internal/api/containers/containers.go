package containers

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/model/pod"
)

// Choose returns the container that a request names, or the pod's only one if the name is empty
// (PodLogOptions.container, PodExecOptions.container).
func Choose(p *corev1.Pod, name string) (pod.Container, error) {
	if name != "" {
		if c, ok := pod.FindContainer(p, name); ok {
			return c, nil
		}
		return pod.Container{}, answer.BadRequest(fmt.Sprintf("container %q is not in pod %s", name, pod.FullName(p)),
			"its containers: "+names(p))
	}
	if len(p.Spec.Containers) == 1 {
		c, _ := pod.FindContainer(p, p.Spec.Containers[0].Name)
		return c, nil
	}
	return pod.Container{}, answer.BadRequest(fmt.Sprintf("pod %s has several containers", pod.FullName(p)),
		"name one: "+names(p))
}

func names(p *corev1.Pod) string {
	var names []string
	for _, c := range pod.Containers(p) {
		names = append(names, c.Name)
	}
	return strings.Join(names, ", ")
}

// Status returns the status of a container of any kind. It is zero if there is no status yet.
func Status(p *corev1.Pod, name string) corev1.ContainerStatus {
	if st := FindStatus(p, name); st != nil {
		return *st
	}
	return corev1.ContainerStatus{}
}

// FindStatus returns the status of a container of any kind, or nil if there is none yet. It is a part of the pod.
func FindStatus(p *corev1.Pod, name string) *corev1.ContainerStatus {
	st := &p.Status
	for _, list := range [][]corev1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses,
		st.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// Running returns a pod's container of that name, or its only one if the name is empty. It returns
// an error if the container is not running.
func Running(p *corev1.Pod, name string) (pod.Container, error) {
	c, err := Choose(p, name)
	if err != nil {
		return c, err
	}
	if st := Status(p, c.Name); st.State.Running == nil {
		return c, answer.BadRequest(fmt.Sprintf("container %q of pod %s is not running", c.Name, pod.FullName(p)),
			fmt.Sprintf("see why with \"berth describe pod %s -n %s\"", p.Name, p.Namespace))
	}
	return c, nil
}
