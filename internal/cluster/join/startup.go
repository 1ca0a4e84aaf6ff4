package join

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// startup holds the kubelet_node_startup_* metrics, which measure how long a node takes to join a cluster. All are 0
// if the Node object existed before, as with the kubelet.
type startup struct {
	before, toRegister, registering, toReady, all prometheus.Gauge
}

func newStartup() startup {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_node_startup_" + name, Help: help})
	}
	return startup{
		before: gauge("pre_kubelet_duration_seconds",
			"Duration in seconds from the boot of the machine to the start of the agent."),
		toRegister: gauge("pre_registration_duration_seconds",
			"Duration in seconds from the start of the agent until the node could be registered."),
		registering: gauge("registration_duration_seconds", "Duration in seconds of the registration of the node."),
		toReady: gauge("post_registration_duration_seconds",
			"Duration in seconds from the registration of the node until it was ready."),
		all: gauge("duration_seconds", "Duration in seconds from the boot of the machine until the node was ready."),
	}
}

// moments are points in time while a node joins a cluster.
type moments struct{ booted, began, tried, registered, ready time.Time }

func (s startup) set(m moments) {
	for gauge, d := range map[prometheus.Gauge]time.Duration{
		s.before: m.began.Sub(m.booted), s.toRegister: m.tried.Sub(m.began), s.registering: m.registered.Sub(m.tried),
		s.toReady: m.ready.Sub(m.registered), s.all: m.ready.Sub(m.booted),
	} {
		gauge.Set(d.Seconds())
	}
}

func (s startup) register(reg prometheus.Registerer) error {
	return errors.Join(reg.Register(s.before), reg.Register(s.toRegister), reg.Register(s.registering),
		reg.Register(s.toReady), reg.Register(s.all))
}

// Register implements Reports.
func (r *reports) Register(reg prometheus.Registerer) error {
	if err := errors.Join(r.statuses.Register(reg), r.startup.register(reg)); err != nil {
		return fmt.Errorf("register metrics of the cluster: %w", err)
	}
	if r.cluster.certificates == nil {
		return nil
	}
	if err := reg.Register(r.cluster.certificates); err != nil {
		return fmt.Errorf("register metrics of certificates: %w", err)
	}
	return nil
}

// nodes is the part of nodeobject.Object that startup needs.
type nodes interface {
	Received() <-chan struct{}
	Changed() <-chan struct{}
	Node() *corev1.Node
}

// follow waits until a node that was registered after the agent's start is ready, and sets the metrics.
func (s startup) follow(ctx context.Context, x nodes, m moments) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-x.Received():
	}
	m.registered = time.Now()
	if x.Node().CreationTimestamp.Time.Before(m.began.Truncate(time.Second)) {
		return nil // the Node existed before
	}
	for {
		changed := x.Changed()
		for _, c := range x.Node().Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				m.ready = time.Now()
				s.set(m)
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}
