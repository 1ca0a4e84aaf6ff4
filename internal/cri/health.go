package cri

import (
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/retry"
)

const (
	// silenceGrace is how long a runtime may stop answering before it counts as not ready. A restart of the runtime
	// must not take the node out of service. It is the kubelet's maxWaitForContainerRuntime.
	silenceGrace = 30 * time.Second

	// readyPeriod is the default time between checks of a ready runtime.
	readyPeriod = 30 * time.Second
	// maxRetry is the longest time between checks of a runtime that does not answer; the kubelet's period.
	maxRetry = 5 * time.Second
	// unreadyPeriod is the time between checks of a runtime that answers and is not ready: pods may be waiting for it.
	unreadyPeriod = time.Second / 2
	// firstRetry is the time until the first check after a failure.
	firstRetry = 250 * time.Millisecond
)

// Health is the state of a runtime after all checks so far. The zero value is a runtime that was never checked. Only
// Observe changes it.
type Health struct {
	// Answered is the time of the last successful Status call; zero if there was none.
	Answered time.Time
	// FailingSince is the time of the first failure since then; zero while Status succeeds.
	FailingSince time.Time
	// Failures is the number of failed checks since FailingSince.
	Failures int
	// Err is the last failure; nil while Status succeeds.
	Err error
	// Status is the last successful answer. It is kept while Status fails.
	Status *runtimeapi.StatusResponse
	// Version is the last answer to Version, which changes when the runtime is upgraded. It is nil before the first
	// check.
	Version *runtimeapi.VersionResponse
}

// Condition is the state of a runtime or of its network, as a node condition shows it.
type Condition struct {
	Ready   bool
	Reason  string // CamelCase; empty when ready
	Message string // empty when ready
}

// Observe returns the health after one more check, which ended at now.
func (h Health) Observe(now time.Time, status *runtimeapi.StatusResponse, err error) Health {
	if err == nil {
		return Health{Answered: now, Status: status, Version: h.Version}
	}
	if h.Err == nil {
		h.FailingSince = now
	}
	h.Failures++
	h.Err = err
	return h
}

// Runtime says whether the runtime can run containers.
func (h Health) Runtime(now time.Time) Condition { return h.condition(runtimeapi.RuntimeReady, now) }

// Network says whether the runtime can connect pods to a network.
func (h Health) Network(now time.Time) Condition { return h.condition(runtimeapi.NetworkReady, now) }

func (h Health) condition(kind string, now time.Time) Condition {
	silent := h.Err != nil && now.Sub(h.FailingSince) >= silenceGrace
	switch {
	case h.Status == nil && h.Err == nil:
		return Condition{Reason: "RuntimeUnknown", Message: "the status of the runtime is not known yet"}
	case h.Status == nil || silent:
		since := h.FailingSince
		if !h.Answered.IsZero() {
			since = h.Answered
		}
		return Condition{Reason: "RuntimeNotAnswering",
			Message: fmt.Sprintf("runtime has not answered Status for %s: %s",
				now.Sub(since).Round(time.Second), h.Err)}
	}
	for _, c := range h.Status.GetStatus().GetConditions() {
		if c.GetType() == kind && !c.GetStatus() {
			return Condition{Reason: c.GetReason(), Message: c.GetMessage()}
		}
	}
	return Condition{Ready: true}
}

// wait is the time until the next check; period is the time between checks of a ready runtime. The first retries after
// a failure come quickly, so that a restarting runtime is found as soon as it answers.
func (h Health) wait(now time.Time, period time.Duration) time.Duration {
	switch {
	case h.Err != nil:
		return retry.Delay(firstRetry, maxRetry, h.Failures)
	case h.Runtime(now).Ready && h.Network(now).Ready:
		return period
	}
	return unreadyPeriod
}
