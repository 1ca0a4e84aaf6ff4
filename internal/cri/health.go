package cri

import (
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// silenceGrace is how long a runtime that answered may be silent before it
	// counts as not ready: a restart of it must not take the node out of
	// service. The kubelet's maxWaitForContainerRuntime.
	silenceGrace = 30 * time.Second

	calmWait    = 30 * time.Second // between looks at a runtime that is ready, unless the node is to know sooner
	troubleWait = 5 * time.Second  // the longest between looks at one that does not answer; the kubelet's period
	unreadyWait = time.Second / 2  // between looks at one that is not ready: pods may be waiting for it
	firstRetry  = 250 * time.Millisecond
)

// Health is what is known of a runtime after some looks at it. The zero value
// is a runtime that was never looked at. It changes only by Observe.
type Health struct {
	// Answered is when Status last answered; zero if it never did.
	Answered time.Time
	// FailingSince is when Status began to fail; zero while it answers.
	FailingSince time.Time
	// Failures counts the looks that failed since then.
	Failures int
	// Err is the last failure; nil while Status answers.
	Err error
	// Status is the last answer, kept while the runtime is silent.
	Status *runtimeapi.StatusResponse
	// Version is its last answer to that: another one after an upgrade. nil before the
	// first look.
	Version *runtimeapi.VersionResponse
}

// Condition is one verdict on a runtime: what a node condition says of it.
type Condition struct {
	Ready   bool
	Reason  string // CamelCase; empty when ready
	Message string // empty when ready
}

// Observe is the health after one more look, which ended at now.
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

// Runtime tells whether containers can be run.
func (h Health) Runtime(now time.Time) Condition { return h.condition(runtimeapi.RuntimeReady, now) }

// Network tells whether pods can be given a network.
func (h Health) Network(now time.Time) Condition { return h.condition(runtimeapi.NetworkReady, now) }

func (h Health) condition(kind string, now time.Time) Condition {
	silent := h.Err != nil && now.Sub(h.FailingSince) >= silenceGrace
	switch {
	case h.Status == nil && h.Err == nil:
		return Condition{Reason: "RuntimeUnknown", Message: "runtime has not been asked for its status yet"}
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

// wait is the time until the next look. Failures are retried quickly at first,
// so that a runtime that restarts is found again as soon as it answers.
func (h Health) wait(now time.Time, calm time.Duration) time.Duration {
	switch {
	case h.Err != nil:
		return min(firstRetry<<min(h.Failures-1, 10), troubleWait)
	case h.Runtime(now).Ready && h.Network(now).Ready:
		return calm
	}
	return unreadyWait
}
