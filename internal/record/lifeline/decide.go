package lifeline

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Limits of the lifeline of one container.
const (
	maxInstances = 50
	maxResults   = 100
)

// bounded removes the oldest elements beyond a limit.
func bounded[T any](all []T, limit int) []T { return slices.Delete(all, 0, max(0, len(all)-limit)) }

// show adds the instances that a status has. A status has the present instance and the one before.
func (c *Container) show(st corev1.ContainerStatus) {
	for _, s := range []corev1.ContainerState{st.LastTerminationState, st.State} {
		var seen Instance
		switch {
		case s.Terminated != nil:
			seen = Instance{Start: s.Terminated.StartedAt.Time, End: s.Terminated.FinishedAt.Time,
				ExitCode: s.Terminated.ExitCode, Reason: s.Terminated.Reason}
		case s.Running != nil:
			seen = Instance{Start: s.Running.StartedAt.Time}
		}
		if !seen.Start.IsZero() {
			c.put(seen)
		}
	}
}

// put adds an instance, or replaces what is known of it.
func (c *Container) put(seen Instance) {
	i, known := slices.BinarySearchFunc(c.Instances, seen, func(a, b Instance) int { return a.Start.Compare(b.Start) })
	if known {
		c.Instances[i] = seen
		return
	}
	c.Instances = bounded(slices.Insert(c.Instances, i, seen), maxInstances)
}

// probed adds the result of a probe.
func (c *Container) probed(kind string, ok bool, at time.Time) {
	i := slices.IndexFunc(c.Probes, func(p Probe) bool { return p.Kind == kind })
	if i < 0 {
		i = len(c.Probes)
		c.Probes = append(c.Probes, Probe{Kind: kind})
	}
	p := &c.Probes[i]
	p.Last = at
	if n := len(p.Results); n == 0 || p.Results[n-1].OK != ok {
		p.Results = bounded(append(p.Results, Result{At: at, OK: ok}), maxResults)
	}
}
