package container

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node"
	"github.com/berth-run/berth/internal/pod/plan"
	"github.com/berth-run/berth/internal/pod/steps/container/render"
)

// effect is the last change to a container: its id, and the state that it has reached at least. The zero value means
// that nothing was changed.
type effect struct {
	id    string
	state pod.ContainerState
	at    time.Time
}

// seenIn reports whether an observed state includes the effect. A plan made from a state without it would do the same
// change twice.
func (e effect) seenIn(o *pod.Observed) bool {
	if e.id == "" {
		return true
	}
	for _, c := range o.ContainersOf() {
		if c.ID == e.id {
			return c.State >= e.state
		}
	}
	// The container is not in the state: it was removed since, or is not visible yet.
	return e.state == pod.StateExited || o != nil && o.At.After(e.at)
}

// waitsFor returns the containers that must be created before c: those before it in the spec that are also being
// started. This order holds only while a pod comes up. A container that has run in this sandbox before restarts on its
// own.
func waitsFor(c plan.Start, starts []plan.Start, o *pod.Observed, sandbox string) []string {
	if last, ok := o.Container(c.Name); c.Kind != pod.App || ok && last.SandboxID == sandbox && !c.Anew {
		return nil
	}
	var names []string
	for _, s := range starts {
		if s.Kind == pod.App && s.Index < c.Index {
			names = append(names, s.Name)
		}
	}
	return names
}

// awaited names what the containers of a pod wait for that is not a task of this step: a running init container, or a
// crash delay.
func awaited(p *corev1.Pod, decided plan.Plan) []string {
	var names []string
	var before string // the init container that the next ones wait for
	for _, c := range pod.Containers(p) {
		w := slices.IndexFunc(decided.Waiting, func(w plan.Waiting) bool { return w.Name == c.Name })
		switch {
		case w >= 0 && decided.Waiting[w].Reason == reason.CrashLoopBackOff:
			names = append(names, "back-off of "+c.Name)
			before = ""
		case w >= 0 && before != "":
			names = append(names, "init container "+before)
			before = ""
		case w < 0 && c.Kind == pod.Init &&
			!slices.ContainsFunc(decided.Start, func(s plan.Start) bool { return s.Name == c.Name }):
			before = c.Name
		case w < 0:
			before = ""
		}
	}
	return names
}

// turn is a container to stop, and the ids of the containers that must end before it gets its stop signal.
type turn struct {
	id, name string
	after    []string
}

// stopOrder returns the stop order of KEP-753: first everything but the sidecars at once, then the sidecars, last one
// first. It includes only containers that may still run.
func stopOrder(p *corev1.Pod, o *pod.Observed) []turn {
	var turns []turn
	place := map[string]int{} // index of each sidecar; all other containers stop first
	for _, c := range pod.Containers(p) {
		if c.Kind == pod.Sidecar {
			place[c.Name] = c.Index
		}
	}
	for _, c := range o.ContainersOf() {
		if c.State != pod.StateRunning && c.State != pod.StateUnknown {
			continue
		}
		t := turn{id: c.ID, name: c.Name}
		mine, sidecar := place[c.Name]
		for _, other := range o.ContainersOf() {
			running := other.State == pod.StateRunning || other.State == pod.StateUnknown
			theirs, otherSidecar := place[other.Name]
			if sidecar && running && (!otherSidecar || theirs > mine) {
				t.after = append(t.after, other.ID)
			}
		}
		turns = append(turns, t)
	}
	return turns
}

// minStop is the least time between a container's stop signal and its kill, whatever the grace period (the kubelet's
// minimum). It does not apply to a stop with an exact grace period.
const minStop = 2 * time.Second

// stopTimeout returns the timeout for StopContainer in whole seconds, as the CRI requires. left is the rest of the
// grace period. since is the time since the first stop signal, or negative if none was sent. least is the least time
// between the stop signal and the kill.
func stopTimeout(left, since, least time.Duration) int64 {
	if since >= 0 {
		least = max(0, least-since)
	}
	left = max(left, least)
	return int64((left + time.Second - 1) / time.Second)
}

// failureEvent returns reason and message of the event for a failed start, as the kubelet writes them. It replaces
// container ids in the message, because they would keep repeated events from being counted together.
func failureEvent(why, message, id, name string) (eventReason, text string) {
	if id != "" {
		message = strings.ReplaceAll(message, id, name)
	}
	switch why {
	case reason.PreCreateHookError:
		return reason.Failed, "Internal PreCreateContainer hook failed: " + message
	case reason.PreStartHookError:
		return reason.Failed, "Internal PreStartContainer hook failed: " + message
	case reason.PostStartHookError:
		// The event has no details: the handler's output may hold secrets of the container.
		return reason.FailedPostStartHook, "PostStartHook failed"
	case reason.CreateContainerConfigError, reason.CreateContainerError, reason.RunContainerError, reason.Blocked:
		return reason.Failed, "Error: " + message
	}
	// Package image has already recorded the details in its own events.
	return reason.Failed, "Error: " + why
}

// nodeOf returns what the configuration of the agent and the facts of the machine say about a node. v2 means that it
// has cgroup v2.
func nodeOf(c *config.Config, facts node.Facts, v2 bool) render.Node {
	n := render.Node{
		CgroupV2:       v2,
		MemoryCapacity: facts.Capacity.Memory().Value(),
		Allocatable:    facts.Allocatable,
		CFSQuota:       c.Pods.CPUCFSQuota, CFSPeriod: c.Pods.CPUCFSQuotaPeriod,
		LimitedSwap:    c.Pods.LimitedSwap,
		StaticCritical: c.Sources.StaticCritical,
		MemoryQoS:      c.Node.Enforce.MemoryQoS,
		GroupOOMKill:   v2 && (c.Pods.SingleProcessOOMKill == nil || !*c.Pods.SingleProcessOOMKill),
		SeccompDefault: c.Pods.SeccompDefault,
		SeccompRoot:    filepath.Join(c.RootDir, "seccomp"),
	}
	if swap := facts.Info.Swap; swap != nil && swap.Capacity != nil {
		n.SwapCapacity = *swap.Capacity
	}
	return n
}
