package container

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/plan"
)

// effect is what was last done to a container: which one, and the state that it
// has reached at least. The zero value is nothing.
type effect struct {
	id    string
	state pod.ContainerState
	at    time.Time
}

// seenIn says whether a reading of the runtime knows of the effect. A plan made
// from one that does not would do it twice.
func (e effect) seenIn(o *pod.Observed) bool {
	if e.id == "" {
		return true
	}
	for _, c := range o.ContainersOf() {
		if c.ID == e.id {
			return c.State >= e.state
		}
	}
	// Unknown: gone since, or not there yet.
	return e.state == pod.StateExited || o != nil && o.At.After(e.at)
}

// waitsFor lists the containers whose creation has to come before that of c:
// those before it in the spec that are being started too. It is a promise about
// a pod that comes up: who ran in this sandbox before restarts by himself.
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

// awaited names what the containers of a pod wait for that is no task of this
// step: an init container that runs, a crash delay.
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

// turn is a container to stop, and the ids of those that have to end before it
// gets its stop signal.
type turn struct {
	id, name string
	after    []string
}

// stopOrder is KEP-753's: all but the sidecars at once, then the sidecars, last
// one first. Only containers that may run take part.
func stopOrder(p *corev1.Pod, o *pod.Observed) []turn {
	var turns []turn
	place := map[string]int{} // of sidecars; all others come first
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

// minStop is what a container gets at least between its stop signal and the
// kill, whatever the grace (the kubelet's minimum).
const minStop = 2 * time.Second

// stopTimeout is the timeout for StopContainer, in whole seconds as CRI has it.
// left is what is left of the grace, since the time since the stop signal was
// first sent, negative when it was not.
func stopTimeout(left, since time.Duration) int64 {
	least := minStop
	if since >= 0 {
		least = max(0, minStop-since)
	}
	left = max(left, least)
	return int64((left + time.Second - 1) / time.Second)
}

// failureEvent words the event for a start that failed, as the kubelet does.
// Container ids do not appear in events: they would keep repeats from being counted.
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
		// What the handler said may hold secrets of the container.
		return reason.FailedPostStartHook, "PostStartHook failed"
	case reason.CreateContainerConfigError, reason.CreateContainerError, reason.RunContainerError:
		return reason.Failed, "Error: " + message
	}
	// The image's own events have told the details.
	return reason.Failed, "Error: " + why
}
