package podstatus

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
)

// containers returns the statuses of the containers of these kinds, in the order of the spec. before are the statuses
// reported last.
func (c *computation) containers(before []corev1.ContainerStatus, kinds ...pod.Kind) []corev1.ContainerStatus {
	old := map[string]*corev1.ContainerStatus{}
	for i := range before {
		old[before[i].Name] = &before[i]
	}
	var all []corev1.ContainerStatus
	for _, k := range c.specs(kinds...) {
		all = append(all, c.container(k, old[k.Name]))
	}
	return all
}

// container returns the status of one container. old is its status reported last, nil if there was none.
func (c *computation) container(k pod.Container, old *corev1.ContainerStatus) corev1.ContainerStatus {
	runs := c.runs[k.Name]
	s := corev1.ContainerStatus{Name: k.Name, Image: k.Image, VolumeMounts: c.mounts(k)}
	if len(runs) == 0 {
		c.absent(k, &s, old)
		c.explain(k, &s, nil)
	} else {
		c.present(k, &s, runs, old)
		c.explain(k, &s, runs[0])
	}
	c.readiness(k, &s, old)
	if c.Devices != nil && !c.Node.Hidden.ResourceHealth {
		s.AllocatedResourcesStatus = c.Devices(k.Name)
		if c.Node.Hidden.ResourceHealthMessage {
			s.AllocatedResourcesStatus = withoutMessages(s.AllocatedResourcesStatus)
		}
	}
	return s
}

func withoutMessages(all []corev1.ResourceStatus) (out []corev1.ResourceStatus) {
	for _, s := range all {
		s.Resources = slices.Clone(s.Resources)
		for i := range s.Resources {
			s.Resources[i].Message = nil
		}
		out = append(out, s)
	}
	return out
}

// present fills in a container that the runtime knows.
func (c *computation) present(k pod.Container, s *corev1.ContainerStatus, runs []*pod.ContainerStatus,
	old *corev1.ContainerStatus) {
	now, actual := *runs[0], c.Actual[runs[0].ID]
	s.ContainerID = c.Node.Runtime + "://" + now.ID
	s.Image, s.ImageID = cmp.Or(now.Image, k.Image), now.ImageID
	s.RestartCount = int32(now.RestartCount)
	s.AllocatedResources, s.Resources = k.Resources.Requests, &k.Resources
	s.User, s.StopSignal = now.User, actual.StopSignal
	if actual.Resources != nil && now.State == pod.StateRunning {
		s.Resources = actual.Resources
	}
	if old == nil {
		old = &corev1.ContainerStatus{}
	}
	switch now.State {
	case pod.StateRunning:
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: stamp(now.StartedAt)}
	case pod.StateExited:
		s.State.Terminated = c.terminated(now)
	case pod.StateCreated:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason.ContainerCreating}
	default:
		c.unknown(s, old)
	}
	last := old.LastTerminationState.Terminated
	switch was := old.State.Terminated; {
	case len(runs) > 1 && runs[1].State == pod.StateExited:
		s.LastTerminationState.Terminated = c.terminated(*runs[1])
	case was != nil && old.ContainerID != s.ContainerID:
		// The runtime does not list the previous run any more, because it was removed.
		s.LastTerminationState.Terminated = was
	case last != nil && last.ContainerID != s.ContainerID:
		s.LastTerminationState = old.LastTerminationState
	}
	s.RestartCount = max(s.RestartCount, countAfter(old, s.ContainerID, now.State))
}

// countAfter returns the lowest restart count that a container may have after old, its status reported last. The count
// never goes back, and a new run after one that has ended counts as a restart. This matters only if the runtime has
// lost the container's own count.
func countAfter(old *corev1.ContainerStatus, id string, state pod.ContainerState) int32 {
	last := old.LastTerminationState.Terminated
	switch {
	case old.State.Terminated != nil && old.ContainerID != id && state == pod.StateRunning:
		return old.RestartCount + 1
	case old.State.Waiting != nil && isLost(last) && last.ContainerID == id:
		return old.RestartCount - 1 // it was counted as lost, and the runtime lists it again
	}
	return old.RestartCount
}

func isLost(end *corev1.ContainerStateTerminated) bool {
	return end != nil && end.Reason == containerStatusUnknown
}

// unknown fills in a container whose state the runtime does not know. If it was seen running, it is shown as ended for
// an unknown reason: as Waiting it would count as never started. The restart count stays, since a runtime that has just
// started may still find the container alive. Only the next run increases it.
func (c *computation) unknown(s, old *corev1.ContainerStatus) {
	switch {
	case isLost(old.State.Terminated) && old.ContainerID == s.ContainerID:
		s.State = old.State
	case old.State.Running != nil:
		s.State = lostState(containerStatusUnknown, lostMessage)
	default:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason.ContainerCreating}
	}
}

// absent fills in a container that the runtime does not list: it was not created yet, or it was removed.
func (c *computation) absent(k pod.Container, s, old *corev1.ContainerStatus) {
	first := reason.ContainerCreating
	if len(c.Pod.Spec.InitContainers) > 0 {
		first = reason.PodInitializing
	}
	s.State.Waiting = &corev1.ContainerStateWaiting{Reason: first}
	if old != nil {
		s.RestartCount, s.LastTerminationState = old.RestartCount, old.LastTerminationState
		switch {
		case c.restartingAll() && old.State.Waiting == nil:
			s.State.Waiting = &corev1.ContainerStateWaiting{Reason: restartingAllContainers, Message: removedMessage}
			s.LastTerminationState = lostState(restartingAllContainers, removedMessage)
			s.RestartCount++
			return
		case old.State.Terminated != nil:
			mounts := s.VolumeMounts
			*s = *old
			s.VolumeMounts = mounts
			return
		case old.State.Running != nil:
			// The last termination state shows that the container has run before, so that the pod does not become
			// Pending again.
			s.LastTerminationState = lostState(containerStatusUnknown, usedToRunMessage)
			s.LastTerminationState.Terminated.ContainerID = old.ContainerID
			if !c.stopping() {
				s.RestartCount++
			}
		}
	}
	if k.Kind == pod.Init && c.appInSandbox() {
		s.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed",
			Message: inferredMessage}}
	}
}

// restartingAll reports whether a restart rule is restarting all containers (KEP-5532).
func (c *computation) restartingAll() bool {
	was := find(c.old.Conditions, corev1.AllContainersRestarting)
	return c.Plan.RestartingAll || was != nil && was.Status == corev1.ConditionTrue
}

// explain replaces the state of a container that should start by the reason why it does not run yet. run is the newest
// run of the container, nil if there is none.
func (c *computation) explain(k pod.Container, s *corev1.ContainerStatus, run *pod.ContainerStatus) {
	if c.stopping() {
		return
	}
	why, message, ok := "", "", false
	switch {
	case run != nil && run.State == pod.StateRunning:
		if ok = c.Starting != nil && c.Starting(k.Name); ok {
			why = reason.ContainerCreating
		}
	case run != nil && run.State == pod.StateExited && !c.restarts(k.Name):
	case run == nil && s.State.Terminated != nil && k.Kind == pod.Init && s.State.Terminated.ExitCode == 0:
	default:
		// A crash delay comes first: alerts look for CrashLoopBackOff also where each start fails. The last termination
		// state then says why.
		if why, message, ok = c.backoff(k.Name); !ok && c.Waiting != nil {
			why, message, ok = c.Waiting(k.Name)
		}
	}
	if !ok {
		return
	}
	if s.State.Terminated != nil {
		s.LastTerminationState = s.State
	}
	s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: why, Message: message}}
}

// restarts reports whether the plan starts a container again, now or after a delay.
func (c *computation) restarts(name string) bool {
	for _, s := range c.Plan.Start {
		if s.Name == name {
			return true
		}
	}
	for _, w := range c.Plan.Waiting {
		if w.Name == name {
			return true
		}
	}
	return false
}

// backoff returns the crash delay that a container waits for.
func (c *computation) backoff(name string) (why, message string, ok bool) {
	for _, w := range c.Plan.Waiting {
		if w.Name == name && w.Reason == reason.CrashLoopBackOff {
			return w.Reason, w.Message, true
		}
	}
	return "", "", false
}

// readiness sets started and ready. Ephemeral containers have neither. If no probe has run yet because the agent has
// just started, the values reported last for the same run stay.
func (c *computation) readiness(k pod.Container, s, old *corev1.ContainerStatus) {
	if k.Kind == pod.Ephemeral {
		return
	}
	probes, probed := c.Probes[strings.TrimPrefix(s.ContainerID, c.Node.Runtime+"://")]
	switch {
	case probed:
	case old != nil && old.State.Running != nil && old.ContainerID == s.ContainerID:
		probes = Probes{Started: isTrue(old.Started), Ready: old.Ready}
	default:
		probes = Probes{Started: k.StartupProbe == nil, Ready: k.ReadinessProbe == nil}
	}
	if k.Kind == pod.Init {
		probes.Started = true
	}
	s.Started = new(s.State.Running != nil && probes.Started)
	s.Ready = *s.Started && probes.Ready
	if k.Kind == pod.Init {
		s.Ready = s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
	}
}

// closeLost shows containers without a known end as Terminated once nothing of the pod runs any more. It is unknown
// whether they succeeded, so they count as failed.
func (c *computation) closeLost() {
	if c.wasInitialized() {
		for i := range c.s.ContainerStatuses {
			closeStatus(&c.s.ContainerStatuses[i])
		}
	}
	inits := c.s.InitContainerStatuses
	if len(inits) == 0 {
		return
	}
	last := 0 // the init containers after the last one that ran stay Waiting
	for i := range inits {
		if ran(inits[i]) {
			last = i
		}
	}
	for i := range inits[:last+1] {
		closeStatus(&inits[i])
	}
}

func closeStatus(s *corev1.ContainerStatus) {
	if s.State.Terminated == nil {
		s.State = lostState(containerStatusUnknown, lostMessage)
		s.Ready = false
		if s.Started != nil {
			s.Started = new(false)
		}
	}
}

// wasInitialized reports whether the pod has ever reached the start of its app containers.
func (c *computation) wasInitialized() bool {
	inits := c.s.InitContainerStatuses
	if len(inits) == 0 || slices.ContainsFunc(c.s.ContainerStatuses, ran) {
		return true
	}
	last := inits[len(inits)-1]
	for _, state := range []corev1.ContainerState{last.State, last.LastTerminationState} {
		if state.Terminated != nil && state.Terminated.ExitCode == 0 {
			return true
		}
	}
	return last.State.Running != nil && isTrue(last.Started)
}

func ran(s corev1.ContainerStatus) bool {
	return s.State.Waiting == nil || s.LastTerminationState.Terminated != nil
}

func lostState(why, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason: why, Message: message, ExitCode: lostExitCode,
	}}
}

// terminated describes an exited container. Its message is the runtime's message followed by the termination message,
// cut to the container's share of the pod's bytes. A message that was reported once stays, since the file or log that
// it came from may be gone.
func (c *computation) terminated(run pod.ContainerStatus) *corev1.ContainerStateTerminated {
	id := c.Node.Runtime + "://" + run.ID
	why, cause := run.Reason, c.outOfMemory(run)
	if cause != "" {
		why = reason.OOMKilled
	}
	message := cmp.Or(run.Message, cause)
	if was := Reported(&c.old, id); was != nil {
		message = cmp.Or(was.Message, cause) // the kernel's log may be read late
	} else if own := c.Messages[run.ID]; own != "" {
		if message != "" {
			message += ": "
		}
		message += own
	}
	spec := &c.Pod.Spec
	share := maxPodMessages / max(1, len(spec.Containers)+len(spec.InitContainers)+len(spec.EphemeralContainers))
	return &corev1.ContainerStateTerminated{
		ExitCode: run.ExitCode, Reason: why, Message: cut(message, share),
		StartedAt: stamp(run.StartedAt), FinishedAt: stamp(run.FinishedAt), ContainerID: id,
	}
}

// outOfMemory says whose memory ran out when the kernel killed a container. containerd 1.6 may report the end before it
// learns that memory ran out, and then gives the reason Error.
func (c *computation) outOfMemory(run pod.ContainerStatus) string {
	const killed = 128 + 9 // the exit code after SIGKILL
	cause := c.Killed[run.ID]
	if cause == "" || run.Reason != reason.OOMKilled && run.ExitCode != killed {
		return ""
	}
	return "killed because " + cause
}

// Reported returns the end of a container that a status shows; nil if it shows none.
func Reported(s *corev1.PodStatus, id string) *corev1.ContainerStateTerminated {
	for _, list := range [][]corev1.ContainerStatus{s.ContainerStatuses, s.InitContainerStatuses,
		s.EphemeralContainerStatuses} {
		for i := range list {
			for _, end := range []*corev1.ContainerStateTerminated{list[i].State.Terminated,
				list[i].LastTerminationState.Terminated} {
				if end != nil && end.ContainerID == id {
					return end
				}
			}
		}
	}
	return nil
}

// cut shortens s to at most n bytes of valid UTF-8, which the API requires.
func cut(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}

// mounts lists the volume mounts with the read-only mode that is in effect (KEP-3857).
func (c *computation) mounts(k pod.Container) (all []corev1.VolumeMountStatus) {
	for _, m := range k.VolumeMounts {
		s := corev1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			s.RecursiveReadOnly = new(corev1.RecursiveReadOnlyDisabled)
			requested := m.RecursiveReadOnly != nil && *m.RecursiveReadOnly != corev1.RecursiveReadOnlyDisabled
			if requested && c.Node.RecursiveReadOnly &&
				(m.MountPropagation == nil || *m.MountPropagation == corev1.MountPropagationNone) {
				*s.RecursiveReadOnly = corev1.RecursiveReadOnlyEnabled
			}
		}
		all = append(all, s)
	}
	return all
}
