package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
)

// Delays of the crash backoff, the same as in the kubelet: the first crash restarts at once, then 10 s doubling up to
// the maximum. A run of at least 10 min resets the delay.
const (
	backoffFirst   = 10 * time.Second
	backoffMax     = 300 * time.Second
	backoffResetAt = 600 * time.Second
)

// Exit code and reason of a container whose end was not observed, the same as in the kubelet.
const (
	lostExitCode = 137
	lostReason   = "ContainerStatusUnknown"
)

// Compute decides what to do for one pod.
func Compute(in Input) Plan {
	c := computation{Input: in, containers: pod.Containers(in.Pod), known: in.Observed.Newest()}
	c.lost = c.lostInstances()
	if c.MaxBackoff <= 0 {
		c.MaxBackoff = backoffMax
	}
	c.deadline()
	c.sandbox()
	c.source = c.restartAllSource()
	switch {
	case pod.Ended(c.Last.Phase):
		c.plan.Done, c.plan.Failed = true, c.Last.Phase == corev1.PodFailed
		c.plan.Sandbox = Sandbox{Op: SandboxNone}
	case c.plan.DeadlineExceeded:
		c.plan.Sandbox = Sandbox{Op: SandboxNone}
	case c.done():
		c.plan.Done = true
		c.plan.Sandbox = Sandbox{Op: SandboxNone}
	case c.plan.Sandbox.Op == SandboxDrain:
		c.drain()
	case c.restartAll():
	default:
		c.anew = c.plan.Sandbox.Op == SandboxCreate
		c.ephemeral()
		if c.init() {
			c.apps()
		}
	}
	return c.plan
}

type computation struct {
	Input
	plan Plan
	anew bool // the containers will run in a sandbox that does not exist yet
	// A pod may have hundreds of containers, so that they are looked up and not searched.
	containers []pod.Container
	known      map[string]*pod.ContainerStatus // name: its newest instance in Observed
	lost       map[string]pod.ContainerStatus  // name: see lostInstances
	// source is the dead container whose exit requires a restart of all containers; nil if there is none.
	source *pod.ContainerStatus
}

func (c *computation) deadline() {
	d := c.Pod.Spec.ActiveDeadlineSeconds
	if d == nil || c.Started.IsZero() {
		return
	}
	end := c.Started.Add(time.Duration(*d) * time.Second)
	if !c.Now.Before(end) {
		c.plan.DeadlineExceeded = true
		return
	}
	c.lookAgain(end)
}

// sandbox requires that a pod has exactly one ready sandbox, with the right network mode and an address.
func (c *computation) sandbox() {
	var why string
	var ready []string
	var boxes []pod.SandboxStatus
	if c.Observed != nil {
		boxes = c.Observed.Sandboxes
	}
	for _, s := range boxes {
		if s.Ready {
			ready = append(ready, s.ID)
		}
	}
	switch {
	case len(boxes) == 0:
		c.plan.Sandbox = Sandbox{Op: SandboxCreate}
		return
	case len(ready) > 1:
		why = fmt.Sprintf("%d sandboxes are ready, one is wanted", len(ready))
	case !boxes[0].Ready:
		why = "the sandbox is not ready"
	case boxes[0].HostNetwork != pod.HostNetwork(c.Pod):
		why = "the network mode changed"
	case !boxes[0].HostNetwork && len(boxes[0].IPs) == 0:
		why = "the sandbox has no address"
	default:
		c.plan.Sandbox = Sandbox{Op: SandboxKeep, ID: boxes[0].ID, Attempt: boxes[0].Attempt}
		return
	}
	stop := ready
	if !boxes[0].Ready { // it may still hold its network
		stop = append(stop, boxes[0].ID)
	}
	c.plan.Sandbox = Sandbox{Op: SandboxCreate, Attempt: boxes[0].Attempt + 1, Stop: stop, Why: why}
	for _, s := range c.Observed.Containers {
		if alive(s) {
			c.plan.Sandbox.Op = SandboxDrain
		}
	}
}

// drain kills all running containers, because the sandbox must be replaced.
func (c *computation) drain() {
	for _, s := range c.Observed.Containers {
		if alive(s) {
			c.plan.Kill = append(c.plan.Kill, Kill{ID: s.ID, Name: s.Name, Reason: KillSandboxGone,
				Why: "Pod sandbox changed, it will be killed and re-created."})
		}
	}
}

// done reports whether the pod has ended by itself, and sets Failed.
func (c *computation) done() bool {
	if len(c.Observed.ContainersOf()) == 0 && !c.anyLost() {
		return false
	}
	if c.source != nil && slices.ContainsFunc(c.Observed.Containers, c.outdated) {
		return false
	}
	for _, k := range c.containers {
		s, ok := c.current(k)
		if k.Kind != pod.Init || !ok || s.State != pod.StateExited || s.ExitCode == 0 {
			continue
		}
		if !c.restarts(k, s) && !c.appSeen() {
			c.plan.Failed = true
			return true
		}
	}
	failed := false
	for _, k := range c.containers {
		if k.Kind != pod.App {
			continue
		}
		s, ok := c.newest(k.Name)
		if !ok || s.State != pod.StateExited || c.restarts(k, s) {
			return false
		}
		failed = failed || s.ExitCode != 0
	}
	c.plan.Failed = failed
	return true
}

// ephemeral starts each ephemeral container once.
func (c *computation) ephemeral() {
	for _, k := range c.containers {
		if k.Kind != pod.Ephemeral {
			continue
		}
		s, ok := c.newest(k.Name)
		switch {
		case !ok:
			c.start(k, pod.ContainerStatus{}, 0)
		case s.State == pod.StateCreated:
			c.replaceUnstarted(k, s)
		}
	}
}

// init plans the next init containers and sidecars in order. It reports whether the app containers may start.
func (c *computation) init() bool {
	initialized := c.appSeen()
	ready := true // all containers before this one are done or started
	for _, k := range c.containers {
		switch {
		case k.Kind == pod.Sidecar && (ready || initialized):
			ready = c.sidecar(k) && ready
		case k.Kind == pod.Init && ready && !initialized:
			ready = c.initContainer(k)
		case k.Kind == pod.Init || k.Kind == pod.Sidecar:
			if !initialized {
				c.wait(k.Name, reason.PodInitializing, "", time.Time{})
			}
		}
	}
	if !ready && !initialized {
		for _, k := range c.containers {
			if k.Kind == pod.App {
				c.wait(k.Name, reason.PodInitializing, "", time.Time{})
			}
		}
		return false
	}
	return true
}

// initContainer reports whether k has completed, and otherwise plans its run.
func (c *computation) initContainer(k pod.Container) bool {
	s, ok := c.current(k)
	switch {
	case !ok:
		c.begin(k)
	case s.State == pod.StateExited && s.ExitCode == 0:
		return true
	case s.State == pod.StateRunning && !c.unhealthy(k, s):
	default:
		c.renew(k, s)
	}
	return false
}

// sidecar reports whether k has started, which includes its startup probe if it has one. Otherwise it plans its run.
func (c *computation) sidecar(k pod.Container) bool {
	s, ok := c.current(k)
	if !ok {
		c.begin(k)
		return false
	}
	if s.State == pod.StateRunning && !c.changed(s) && !c.unhealthy(k, s) {
		return k.StartupProbe == nil || c.Probes[s.ID].Startup == Success
	}
	c.renew(k, s)
	return false
}

func (c *computation) apps() {
	for _, k := range c.containers {
		if k.Kind != pod.App {
			continue
		}
		s, ok := c.newest(k.Name)
		switch {
		case !ok || c.isSource(s):
			c.begin(k)
		case s.State == pod.StateExited && s.SandboxID != c.plan.Sandbox.ID && c.restarts(k, s):
			c.start(k, s, 0) // it ended with its sandbox, which is no crash to back off from
		case s.State == pod.StateRunning && !c.changed(s) && !c.unhealthy(k, s):
		default:
			c.renew(k, s)
		}
	}
}

// begin plans a run without a backoff, because no crash in this sandbox precedes it. Only the source of a restart of
// all containers has a backoff, which has passed already.
func (c *computation) begin(k pod.Container) {
	last, _ := c.newest(k.Name)
	if !c.isSource(last) {
		c.start(k, last, 0)
		return
	}
	c.start(k, last, c.crashDelay(last))
	c.plan.Start[len(c.plan.Start)-1].Anew = true
}

func (c *computation) isSource(s pod.ContainerStatus) bool {
	return c.source != nil && c.source.ID == s.ID
}

// renew plans the replacement of a container that is not running well.
func (c *computation) renew(k pod.Container, s pod.ContainerStatus) {
	switch s.State {
	case pod.StateCreated:
		c.replaceUnstarted(k, s)
	case pod.StateExited:
		c.restart(k, s)
	case pod.StateUnknown:
		c.plan.Kill = append(c.plan.Kill, Kill{ID: s.ID, Name: s.Name, Reason: KillSpecChanged,
			Why: kindOf(k) + ` is in "unknown" state, try killing it before restart`})
	case pod.StateRunning:
		c.kill(k, s)
	}
}

func (c *computation) kill(k pod.Container, s pod.ContainerStatus) {
	kill := Kill{ID: s.ID, Name: s.Name}
	probes, restarts := c.Probes[s.ID], c.restartsAfterKill(k)
	var what string
	switch {
	case c.outOfDate(s):
		kill.Reason, kill.Replace, what, restarts = KillSpecChanged, true, "definition changed", true
	case c.Restart[s.ID]:
		c.plan.Kill = append(c.plan.Kill, Kill{ID: s.ID, Name: s.Name, Reason: KillResized,
			Why: fmt.Sprintf("Container %s resize requires restart", k.Name)})
		return
	case probes.Startup == Failure:
		kill.Reason, kill.Grace, what = KillStartup, probes.Grace, "failed startup probe"
	default:
		kill.Reason, kill.Grace, what = KillLiveness, probes.Grace, "failed liveness probe"
	}
	kill.Why = fmt.Sprintf("%s %s %s", kindOf(k), k.Name, what)
	if restarts && k.Kind == pod.App {
		kill.Why += ", will be restarted"
	}
	c.plan.Kill = append(c.plan.Kill, kill)
}

// kindOf returns the first words of the message about the kill of a container, in the kubelet's words.
func kindOf(k pod.Container) string {
	if k.Kind == pod.App {
		return "Container"
	}
	return "Init container"
}

// restartsAfterKill reports whether a container may run again after a kill for a failed probe. Its own policy decides,
// else the pod's. Rules for exit codes do not count, because it has no exit code yet.
func (c *computation) restartsAfterKill(k pod.Container) bool {
	if k.RestartPolicy != nil {
		return *k.RestartPolicy != corev1.ContainerRestartPolicyNever
	}
	return c.Pod.Spec.RestartPolicy != corev1.RestartPolicyNever
}

// replaceUnstarted replaces a container that was created and never started. The agent that created it ended meanwhile,
// so its preparations may be incomplete.
func (c *computation) replaceUnstarted(k pod.Container, s pod.ContainerStatus) {
	c.plan.Remove = append(c.plan.Remove, s.ID)
	c.plan.Start = append(c.plan.Start, Start{Container: k, RestartCount: s.RestartCount, Backoff: s.Backoff})
}

// restart plans the next run of an exited container, now or after its backoff.
func (c *computation) restart(k pod.Container, s pod.ContainerStatus) {
	if !c.restarts(k, s) {
		return
	}
	if c.changed(s) {
		c.start(k, s, 0) // the delay was for another spec
		return
	}
	delay := c.crashDelay(s)
	if until, waits := c.backsOff(s, delay); waits {
		c.wait(k.Name, reason.CrashLoopBackOff, c.backoffMessage(k.Name, delay), until)
		return
	}
	c.start(k, s, delay)
}

// backsOff reports until when an exited container must wait. A container with an end in the future does not wait: the
// machine's clock was set back, so the time it has waited is unknown.
func (c *computation) backsOff(s pod.ContainerStatus, delay time.Duration) (until time.Time, waits bool) {
	until = s.FinishedAt.Add(delay)
	return until, c.Now.Before(until) && !s.FinishedAt.After(c.Now)
}

func (c *computation) backoffMessage(name string, delay time.Duration) string {
	return fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", delay, name, c.Pod.Name,
		c.Pod.Namespace, c.Pod.UID)
}

// crashDelay returns how long after its end a container may start again.
func (c *computation) crashDelay(s pod.ContainerStatus) time.Duration {
	ran := s.FinishedAt.Sub(s.StartedAt)
	switch {
	case s.RestartCount == 0, !s.StartedAt.IsZero() && ran >= backoffResetAt:
		return 0
	case s.Backoff == 0:
		return min(backoffFirst, c.MaxBackoff)
	default:
		return min(2*s.Backoff, c.MaxBackoff)
	}
}

// start plans a run of k. last is its previous instance, the zero value for the first run.
func (c *computation) start(k pod.Container, last pod.ContainerStatus, backoff time.Duration) {
	count := 0
	if last.Name != "" {
		count = last.RestartCount + 1
	}
	c.plan.Start = append(c.plan.Start, Start{Container: k, RestartCount: count, Backoff: backoff})
}

func (c *computation) wait(name, why, message string, until time.Time) {
	c.plan.Waiting = append(c.plan.Waiting, Waiting{Name: name, Reason: why, Message: message, Until: until})
	c.lookAgain(until)
}

func (c *computation) lookAgain(at time.Time) {
	if !at.IsZero() && (c.plan.LookAgain.IsZero() || at.Before(c.plan.LookAgain)) {
		c.plan.LookAgain = at
	}
}

// newest returns the last instance of a container in any sandbox, including one that the runtime lost after it was
// reported.
func (c *computation) newest(name string) (pod.ContainerStatus, bool) {
	if s, ok := c.known[name]; ok {
		return *s, true
	}
	s, ok := c.lost[name]
	return s, ok
}

// lostInstances returns, by name, the last instances of app and ephemeral containers that the runtime may no longer
// have. The status has reported each as running or ended. The end of one that was running is unknown, which counts as a
// failure (137). If the pod has a rule that restarts all containers, nothing counts as lost: the restart removed it,
// and it must run again. Init containers do not count, because they may run again.
func (c *computation) lostInstances() map[string]pod.ContainerStatus {
	if c.restartsAll() {
		return nil
	}
	lost := map[string]pod.ContainerStatus{}
	for _, s := range slices.Concat(c.Last.ContainerStatuses, c.Last.EphemeralContainerStatuses) {
		end, count := s.State.Terminated, int(s.RestartCount)
		if run, last := s.State.Running, s.LastTerminationState.Terminated; run != nil {
			end = &corev1.ContainerStateTerminated{ContainerID: s.ContainerID, ExitCode: lostExitCode,
				Reason: lostReason, StartedAt: run.StartedAt}
		} else if end == nil && last != nil && last.Reason == lostReason {
			end, count = last, max(0, count-1) // the status counts the next run
		}
		if _, earlier := lost[s.Name]; earlier || end == nil {
			continue
		}
		_, id, _ := strings.Cut(end.ContainerID, "://")
		lost[s.Name] = pod.ContainerStatus{ID: id, Name: s.Name, State: pod.StateExited, ExitCode: end.ExitCode,
			Reason:    end.Reason,
			StartedAt: end.StartedAt.Time, FinishedAt: end.FinishedAt.Time, RestartCount: count}
	}
	return lost
}

func (c *computation) anyLost() bool {
	return slices.ContainsFunc(c.containers, func(k pod.Container) bool { _, ok := c.lost[k.Name]; return ok })
}

// restartsAll reports whether the pod has a rule that restarts all containers.
func (c *computation) restartsAll() bool {
	return slices.ContainsFunc(c.containers, func(k pod.Container) bool {
		return slices.ContainsFunc(k.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
			return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		})
	})
}

// current returns the last instance in the kept sandbox. If no sandbox is kept, it uses the newest one, because its
// containers show how the pod ended. If all containers start anew in a new sandbox, no instance is current.
func (c *computation) current(k pod.Container) (pod.ContainerStatus, bool) {
	if c.anew {
		return pod.ContainerStatus{}, false
	}
	s, ok := c.newest(k.Name)
	if c.isSource(s) {
		return pod.ContainerStatus{}, false // all containers start anew
	}
	if c.Observed == nil || len(c.Observed.Sandboxes) == 0 {
		return s, ok
	}
	if !ok || s.SandboxID != c.Observed.Sandboxes[0].ID {
		return pod.ContainerStatus{}, false
	}
	return s, true
}

// appSeen reports whether an app container was created in the current sandbox. If so, the init containers have
// completed, even if the runtime has removed them.
func (c *computation) appSeen() bool {
	return slices.ContainsFunc(c.containers, func(k pod.Container) bool {
		if k.Kind != pod.App {
			return false
		}
		_, ok := c.current(k)
		return ok
	})
}

// changed reports whether a container that runs must be replaced: its spec has changed, or it is to get other
// resources.
func (c *computation) changed(s pod.ContainerStatus) bool { return c.Restart[s.ID] || c.outOfDate(s) }

// outOfDate reports whether a container was created from another spec. A container without a hash was not created by a
// kubelet or Berth and stays.
func (c *computation) outOfDate(s pod.ContainerStatus) bool {
	want := c.Hash[s.Name]
	return want != "" && s.Hash != "" && want != s.Hash
}

func (c *computation) unhealthy(k pod.Container, s pod.ContainerStatus) bool {
	if c.changed(s) {
		return k.Kind != pod.Init
	}
	p := c.Probes[s.ID]
	return p.Startup == Failure || p.Liveness == Failure
}

// restarts reports whether an exited container must run again. A container that was stopped to be replaced always does.
// Otherwise its rules come first (KEP-5307), then its own policy, then the pod's. A change of its spec after its end is
// no reason, as under the kubelet.
func (c *computation) restarts(k pod.Container, s pod.ContainerStatus) bool {
	if k.Kind == pod.Ephemeral {
		return false
	}
	if c.Restart[s.ID] {
		return true
	}
	if k.Kind == pod.Sidecar {
		return true
	}
	if ruleFor(k.Container, s.ExitCode) != "" {
		return true
	}
	policy := string(c.Pod.Spec.RestartPolicy)
	if k.RestartPolicy != nil {
		policy = string(*k.RestartPolicy)
	}
	switch corev1.RestartPolicy(policy) {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return s.ExitCode != 0
	default:
		return k.Kind == pod.App || s.ExitCode != 0
	}
}

// ruleFor returns the action of the first restart rule that matches the exit code, or "".
func ruleFor(k *corev1.Container, code int32) corev1.ContainerRestartRuleAction {
	for _, r := range k.RestartPolicyRules {
		if r.ExitCodes == nil {
			continue
		}
		in := slices.Contains(r.ExitCodes.Values, code)
		if in == (r.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
			return r.Action
		}
	}
	return ""
}

func alive(s pod.ContainerStatus) bool {
	return s.State == pod.StateRunning || s.State == pod.StateUnknown
}
