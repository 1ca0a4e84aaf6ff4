package plan

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
)

// restartAll carries on a restart of all containers that a rule asked for
// (KEP-5532): kill what runs, remove it, wait for the crash delay of the container
// that asked, begin anew. It is read off that container, the source, which stays
// as the dead instance that its own start follows; so do ephemeral containers, by
// which it is known that they have run. It returns false when the pod may begin
// anew.
func (c *computation) restartAll() bool {
	if c.source == nil {
		return false
	}
	none := int64(0)
	for _, s := range c.Observed.Containers {
		switch {
		case !c.outdated(s):
		case alive(s):
			c.plan.Kill = append(c.plan.Kill, Kill{ID: s.ID, Name: s.Name, Reason: KillRestartAll, Grace: &none,
				Why: fmt.Sprintf("Container %s asked for a restart of all containers", c.source.Name)})
		default:
			c.plan.Remove = append(c.plan.Remove, s.ID)
		}
	}
	if len(c.plan.Kill) > 0 {
		c.plan.Remove = nil
	}
	if c.plan.RestartingAll = len(c.plan.Kill)+len(c.plan.Remove) > 0; c.plan.RestartingAll {
		return true
	}
	delay := c.crashDelay(*c.source)
	if until, waits := c.backsOff(*c.source, delay); waits {
		c.wait(c.source.Name, reason.CrashLoopBackOff, c.backoffMessage(c.source.Name, delay), until)
		return true
	}
	return false
}

// outdated says whether a container is of the time before the source ended, and so
// is to go. Behind an init container it is unless that has run since.
func (c *computation) outdated(s pod.ContainerStatus) bool {
	if s.ID == c.source.ID || c.isEphemeral(s.Name) && !alive(s) {
		return false
	}
	if !s.CreatedAt.After(c.source.FinishedAt) {
		return true
	}
	for _, k := range pod.Containers(c.Pod) {
		if k.Name == s.Name || k.Kind == pod.App || c.isEphemeral(s.Name) {
			return false
		}
		if before, ok := c.Observed.Container(k.Name); k.Kind == pod.Init &&
			(!ok || !before.CreatedAt.After(c.source.FinishedAt)) {
			return true
		}
	}
	return false
}

// restartAllSource is the newest dead container whose exit asks for a restart of
// all, and nil when there is none. An end that lies ahead, from before the machine's clock was set
// back, does not: nothing would ever be newer.
func (c *computation) restartAllSource() (source *pod.ContainerStatus) {
	for _, k := range pod.Containers(c.Pod) {
		s, ok := c.current(k)
		if ok && s.State == pod.StateExited && !c.changed(s) &&
			ruleFor(k.Container, s.ExitCode) == corev1.ContainerRestartRuleActionRestartAllContainers &&
			!s.FinishedAt.After(c.Now) && (source == nil || s.FinishedAt.After(source.FinishedAt)) {
			source = &s
		}
	}
	return source
}

func (c *computation) isEphemeral(name string) bool {
	k, ok := pod.FindContainer(c.Pod, name)
	return ok && k.Kind == pod.Ephemeral
}
