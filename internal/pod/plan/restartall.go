package plan

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
)

// restartAll plans the next stage of a restart of all containers (KEP-5532): kill what runs, remove it, wait for the
// crash delay of the container that triggered it. That container, the source, is kept as the dead instance before its
// next start, because every stage is derived from it. Dead ephemeral containers are kept too, as a record that they
// have run. It returns false when all containers may start anew.
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
	if c.changed(*c.source) {
		return false // the delay was for another spec
	}
	delay := c.crashDelay(*c.source)
	if until, waits := c.backsOff(*c.source, delay); waits {
		c.wait(c.source.Name, reason.CrashLoopBackOff, c.backoffMessage(c.source.Name, delay), until)
		return true
	}
	return false
}

// outdated reports whether a container was created before the source ended, so that it must be removed. A container
// behind an init container is also outdated unless that init container has run since.
func (c *computation) outdated(s pod.ContainerStatus) bool {
	if s.ID == c.source.ID || c.isEphemeral(s.Name) && !alive(s) {
		return false
	}
	if !s.CreatedAt.After(c.source.FinishedAt) {
		return true
	}
	for _, k := range c.containers {
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

// restartAllSource returns the newest dead container whose exit code triggers a restart of all containers, nil if there
// is none. A container with an end in the future does not count: the machine's clock was set back, and no later
// instance would ever be newer. A source whose spec has changed since still counts: other containers may have been
// removed for it, and must start in their order.
func (c *computation) restartAllSource() (source *pod.ContainerStatus) {
	for _, k := range c.containers {
		s, ok := c.current(k)
		if ok && s.State == pod.StateExited &&
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
