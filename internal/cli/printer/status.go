package printer

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// summary holds the values of the columns READY, STATUS and RESTARTS for a pod.
type summary struct {
	ready, total int
	status       string
	restarts     int
	lastRestart  time.Time // zero if unknown
}

// summarize computes the columns of a pod as kubectl does: STATUS is the first reason why the pod is not
// running. Init containers come before the others.
func summarize(p *corev1.Pod) summary {
	s := summary{status: string(p.Status.Phase), total: len(p.Spec.Containers)}
	if p.Status.Reason != "" {
		s.status = p.Status.Reason
	}
	if c := condition(p, corev1.PodScheduled); c != nil && c.Reason == corev1.PodReasonSchedulingGated {
		s.status = corev1.PodReasonSchedulingGated
	}
	sidecars := map[string]bool{}
	for _, c := range pod.Containers(p) {
		if c.Kind == pod.Sidecar {
			sidecars[c.Name] = true
		}
	}
	s.total += len(sidecars)
	initializing := s.initContainers(p, sidecars)
	if !initializing || isTrue(p, corev1.PodInitialized) {
		s.appContainers(p, sidecars)
	}
	if p.DeletionTimestamp != nil && !pod.Ended(p.Status.Phase) {
		s.status = "Terminating"
	}
	return s
}

// initContainers adds the init containers. It returns true if one of them still blocks the others.
func (s *summary) initContainers(p *corev1.Pod, sidecars map[string]bool) bool {
	for i, c := range p.Status.InitContainerStatuses {
		s.restarted(c)
		switch {
		case c.State.Terminated != nil && c.State.Terminated.ExitCode == 0:
			continue
		case sidecars[c.Name] && c.Started != nil && *c.Started:
			if c.Ready {
				s.ready++
			}
			continue
		case c.State.Terminated != nil:
			s.status = "Init:" + exit(c.State.Terminated)
		case c.State.Waiting != nil && c.State.Waiting.Reason != "" && c.State.Waiting.Reason != "PodInitializing":
			s.status = "Init:" + c.State.Waiting.Reason
		default:
			s.status = fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
		}
		return true
	}
	return false
}

// appContainers adds the app containers. It counts restarts anew, for app containers and sidecars only,
// because the init containers are done.
func (s *summary) appContainers(p *corev1.Pod, sidecars map[string]bool) {
	s.restarts, s.lastRestart = 0, time.Time{}
	for _, c := range p.Status.InitContainerStatuses {
		if sidecars[c.Name] {
			s.restarted(c)
		}
	}
	running := false
	for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := p.Status.ContainerStatuses[i]
		s.restarted(c)
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			s.status = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			s.status = exit(c.State.Terminated)
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.status == "Completed" && running {
		s.status = "NotReady"
		if isTrue(p, corev1.PodReady) {
			s.status = "Running"
		}
	}
}

func (s *summary) restarted(c corev1.ContainerStatus) {
	s.restarts += int(c.RestartCount)
	if t := c.LastTerminationState.Terminated; t != nil && t.FinishedAt.After(s.lastRestart) {
		s.lastRestart = t.FinishedAt.Time
	}
}

// exit returns the STATUS text of an ended container.
func exit(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}

func condition(p *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == kind {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

func isTrue(p *corev1.Pod, kind corev1.PodConditionType) bool {
	c := condition(p, kind)
	return c != nil && c.Status == corev1.ConditionTrue
}
