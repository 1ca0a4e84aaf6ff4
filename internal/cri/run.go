package cri

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// MonitorOptions of a Monitor. The zero value is for who only waits for the network.
type MonitorOptions struct {
	// Calm is the time between looks while all is well. Default 30 s.
	Calm time.Duration
	// Observe, if not nil, is called from Run after every look: also while nothing
	// but the age of a failure changes, since a Condition depends on it.
	Observe func(Health)
}

// Monitor keeps the Health of one runtime, and is who asks for it. It does so
// every MonitorOptions.Calm while all is well, at once when any call of the client
// is lost, and more often until the runtime is ready again.
type Monitor struct {
	client  *Client
	options MonitorOptions
	log     *slog.Logger
	health  atomic.Pointer[Health]

	mu     sync.Mutex
	looked chan struct{} // closed by the next look
}

// NewMonitor makes the monitor of client's runtime; there may be one per Client.
func NewMonitor(client *Client, o MonitorOptions, log *slog.Logger) *Monitor {
	if o.Calm <= 0 {
		o.Calm = calmWait
	}
	if o.Observe == nil {
		o.Observe = func(Health) {}
	}
	m := &Monitor{client: client, options: o, log: log, looked: make(chan struct{})}
	m.health.Store(&Health{})
	return m
}

// Health is the result of the last look.
func (m *Monitor) Health() Health { return *m.health.Load() }

// next is closed by the next look.
func (m *Monitor) next() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.looked
}

// AwaitNetwork returns nil when pods can be given a network, or when the runtime
// does not answer: what is then asked of it fails for a better reason. It calls
// wait once with what is wrong, before it waits, and returns ctx's error if that
// ends first.
func (m *Monitor) AwaitNetwork(ctx context.Context, wait func(Condition)) error {
	for told := false; ; {
		looked := m.next()
		h := m.Health()
		network := h.condition(runtimeapi.NetworkReady, time.Now())
		if !h.FailingSince.IsZero() || network.Ready {
			return nil
		}
		if h.Status != nil && !told {
			wait(network)
			told = true
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-looked:
		}
	}
}

// Run looks until ctx ends, and returns its error.
func (m *Monitor) Run(ctx context.Context) error {
	for {
		h, err := m.look(ctx)
		if err != nil {
			return err
		}
		timer := time.NewTimer(h.wait(time.Now(), m.options.Calm))
		// While the runtime fails, lost calls are no news.
		trouble := m.client.trouble
		if h.Err != nil {
			trouble = nil
		}
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-trouble:
			timer.Stop()
		case <-timer.C:
		}
	}
}

func (m *Monitor) look(ctx context.Context) (Health, error) {
	status, err := m.client.Runtime.Status(ctx, &runtimeapi.StatusRequest{})
	if ctx.Err() != nil {
		return Health{}, ctx.Err()
	}
	before := m.Health()
	h := before.Observe(time.Now(), status, err)
	if err == nil { // a runtime may be upgraded within the time between two looks
		if version, err := m.client.Runtime.Version(ctx, &runtimeapi.VersionRequest{}); err == nil {
			h.Version = version
		}
	}
	m.health.Store(&h)
	m.mu.Lock()
	close(m.looked)
	m.looked = make(chan struct{})
	m.mu.Unlock()
	switch {
	case h.Err != nil && before.Err == nil:
		m.log.Warn("runtime does not answer", "endpoint", m.client.Endpoint(), "error", h.Err)
	case h.Err == nil && before.Err != nil:
		m.log.Info("runtime answers again", "endpoint", m.client.Endpoint(), "after",
			h.Answered.Sub(before.FailingSince))
	}
	m.options.Observe(h)
	return h, nil
}
