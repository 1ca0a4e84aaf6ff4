package cri

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/wake"
)

// MonitorOptions configure a Monitor. The zero value suffices for a caller that only waits for the network.
type MonitorOptions struct {
	// Period is the time between checks while the runtime is ready. Default 30 s.
	Period time.Duration
	// Conditions show each answer of the runtime. nil: nothing shows them.
	Conditions Conditions
}

// Conditions are the conditions of a node.
type Conditions interface {
	// SetRuntimeStatus takes over the runtime's conditions.
	SetRuntimeStatus(*runtimeapi.StatusResponse)
}

// Monitor checks one runtime and keeps its Health. It checks every MonitorOptions.Period while the runtime is ready,
// and at once when the runtime does not answer a call of the client. Until the runtime is ready again it checks more
// often.
type Monitor struct {
	client  *Client
	options MonitorOptions
	log     *slog.Logger
	health  atomic.Pointer[Health]

	checked wake.Broadcast // after each check
}

// NewMonitor makes the monitor of client's runtime. There may be only one per Client.
func NewMonitor(client *Client, o MonitorOptions, log *slog.Logger) *Monitor {
	if o.Period <= 0 {
		o.Period = readyPeriod
	}
	m := &Monitor{client: client, options: o, log: log}
	m.health.Store(&Health{})
	return m
}

// Health is the result of the last check.
func (m *Monitor) Health() Health { return *m.health.Load() }

// AwaitNetwork returns nil when the runtime can connect pods to a network. It also returns nil if the runtime does not
// answer, since the caller's next call then fails with a clearer error. Before it waits it calls wait once, with the
// network's condition. If ctx ends first it returns ctx's error.
func (m *Monitor) AwaitNetwork(ctx context.Context, wait func(Condition)) error {
	for reported := false; ; {
		checked := m.checked.C()
		h := m.Health()
		network := h.condition(runtimeapi.NetworkReady, time.Now())
		if !h.FailingSince.IsZero() || network.Ready {
			return nil
		}
		if h.Status != nil && !reported {
			wait(network)
			reported = true
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-checked:
		}
	}
}

// Run checks the runtime until ctx ends, and returns ctx's error.
func (m *Monitor) Run(ctx context.Context) error {
	for {
		h, err := m.check(ctx)
		if err != nil {
			return err
		}
		timer := time.NewTimer(h.wait(time.Now(), m.options.Period))
		// While Status fails, a lost call adds no information.
		lost := m.client.lost.C()
		if h.Err != nil {
			lost = nil
		}
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-lost:
			timer.Stop()
		case <-timer.C:
		}
	}
}

func (m *Monitor) check(ctx context.Context) (Health, error) {
	status, err := m.client.Runtime.Status(ctx, &runtimeapi.StatusRequest{})
	if ctx.Err() != nil {
		return Health{}, ctx.Err()
	}
	before := m.Health()
	h := before.Observe(time.Now(), status, err)
	if err == nil { // a runtime may be upgraded between two checks
		if version, err := m.client.Runtime.Version(ctx, &runtimeapi.VersionRequest{}); err == nil {
			h.Version = version
		}
	}
	m.health.Store(&h)
	m.checked.Wake()
	switch {
	case h.Err != nil && before.Err == nil:
		m.log.Warn("runtime does not answer", "endpoint", m.client.Endpoint(), "error", h.Err)
	case h.Err == nil && before.Err != nil:
		m.log.Info("runtime answers again", "endpoint", m.client.Endpoint(), "after",
			h.Answered.Sub(before.FailingSince))
	}
	if err == nil && m.options.Conditions != nil { // a runtime that does not answer has its own condition
		m.options.Conditions.SetRuntimeStatus(h.Status)
	}
	return h, nil
}
