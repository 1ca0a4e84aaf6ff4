package cri

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func answer(runtimeReady, networkReady bool) *runtimeapi.StatusResponse {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: runtimeReady, Reason: "ShimBroken", Message: "no shim"},
		{Type: runtimeapi.NetworkReady, Status: networkReady, Reason: "NetworkPluginNotReady",
			Message: "no CNI configuration"},
	}}}
}

func TestHealth(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	broken := errors.New("connection refused")
	ready := Condition{Ready: true}
	type check struct {
		at     time.Duration
		answer *runtimeapi.StatusResponse // nil is a failure
	}
	for _, test := range []struct {
		name             string
		checks           []check
		now              time.Duration
		runtime, network Condition
		wait             time.Duration
	}{
		{"never checked", nil, 0,
			Condition{Reason: "RuntimeUnknown", Message: "the status of the runtime is not known yet"},
			Condition{Reason: "RuntimeUnknown", Message: "the status of the runtime is not known yet"}, unreadyPeriod},
		{"ready", []check{{0, answer(true, true)}}, 0, ready, ready, readyPeriod},
		{"no network", []check{{0, answer(true, false)}}, 0,
			ready, Condition{Reason: "NetworkPluginNotReady", Message: "no CNI configuration"}, unreadyPeriod},
		{"not ready", []check{{0, answer(false, true)}}, 0,
			Condition{Reason: "ShimBroken", Message: "no shim"}, ready, unreadyPeriod},
		{"never answered", []check{{0, nil}, {2 * time.Second, nil}}, 3 * time.Second,
			Condition{Reason: "RuntimeNotAnswering",
				Message: "runtime has not answered Status for 3s: connection refused"},
			Condition{Reason: "RuntimeNotAnswering",
				Message: "runtime has not answered Status for 3s: connection refused"}, 2 * firstRetry},
		{"silent for a moment", []check{{0, answer(true, true)}, {time.Second, nil}}, 30 * time.Second,
			ready, ready, firstRetry},
		{"silent for long", []check{{0, answer(true, true)}, {2 * time.Second, nil}, {7 * time.Second, nil}},
			32 * time.Second,
			Condition{Reason: "RuntimeNotAnswering",
				Message: "runtime has not answered Status for 32s: connection refused"},
			Condition{Reason: "RuntimeNotAnswering",
				Message: "runtime has not answered Status for 32s: connection refused"}, 2 * firstRetry},
		{"back", []check{{0, answer(true, true)}, {2 * time.Second, nil}, {50 * time.Second, answer(true, true)}},
			time.Minute,
			ready, ready, readyPeriod},
	} {
		t.Run(test.name, func(t *testing.T) {
			var h Health
			for _, c := range test.checks {
				if c.answer == nil {
					h = h.Observe(start.Add(c.at), nil, broken)
				} else {
					h = h.Observe(start.Add(c.at), c.answer, nil)
				}
			}
			now := start.Add(test.now)
			if diff := cmp.Diff(test.runtime, h.Runtime(now)); diff != "" {
				t.Errorf("runtime: %s", diff)
			}
			if diff := cmp.Diff(test.network, h.Network(now)); diff != "" {
				t.Errorf("network: %s", diff)
			}
			if got := h.wait(now, readyPeriod); got != test.wait {
				t.Errorf("next check after %s, want %s", got, test.wait)
			}
		})
	}
}

func TestHealthRetriesSlowDown(t *testing.T) {
	var h Health
	var waits []time.Duration
	for range 7 {
		h = h.Observe(time.Time{}, nil, errors.New("refused"))
		waits = append(waits, h.wait(time.Time{}, readyPeriod))
	}
	s := time.Second
	want := []time.Duration{s / 4, s / 2, s, 2 * s, 4 * s, 5 * s, 5 * s}
	if diff := cmp.Diff(want, waits); diff != "" {
		t.Error(diff)
	}
}
