package servertest

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pod returns a pending pod with these app containers, created three hours ago.
func Pod(name string, containers ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default",
			CreationTimestamp: metav1.NewTime(time.Now().Add(-3 * time.Hour))},
		Spec:   corev1.PodSpec{NodeName: "node"},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, c := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c, Image: "example.test/" + c + ":v1"})
	}
	return p
}

// Run sets the status of a pod whose app containers all run and are ready.
func Run(p *corev1.Pod) {
	p.Status.Phase = corev1.PodRunning
	p.Status.PodIP = "10.0.0.7"
	p.Status.ContainerStatuses = nil
	for _, c := range p.Spec.Containers {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Ready: true, ContainerID: "containerd://" + c.Name + "-0", Image: c.Image,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: p.CreationTimestamp}},
		})
	}
	SetReady(p, corev1.ConditionTrue)
}

// SetReady sets the condition Ready.
func SetReady(p *corev1.Pod, status corev1.ConditionStatus) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
}

// Restart ends the running instance of a pod's i-th container with a code and
// starts the next one.
func Restart(p *corev1.Pod, i int, code int32) {
	st := &p.Status.ContainerStatuses[i]
	st.LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code,
		Reason: "Error", ContainerID: st.ContainerID}}
	st.RestartCount++
	st.ContainerID = fmt.Sprintf("containerd://%s-%d", st.Name, st.RestartCount)
}

// Terminate ends every container that has not ended, and the pod.
func Terminate(p *corev1.Pod, code int32) {
	p.Status.Phase = corev1.PodSucceeded
	for i := range p.Status.ContainerStatuses {
		st := &p.Status.ContainerStatuses[i]
		if st.State.Terminated == nil {
			reason := "Completed"
			if code != 0 {
				reason = "Error"
			}
			st.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code,
				Reason: reason, ContainerID: st.ContainerID}}
		}
		st.Ready = false
		if st.State.Terminated.ExitCode != 0 {
			p.Status.Phase = corev1.PodFailed
		}
	}
	SetReady(p, corev1.ConditionFalse)
}
