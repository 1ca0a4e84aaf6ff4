package servertest

import (
	"context"
	"sync"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/node/resource"
)

// node shows the state of the agent and the resources of the machine that a test sets.
type node struct {
	mu      sync.Mutex
	status  api.Status
	health  error
	hanging []string
	machine resource.Node
	held    resource.Held

	pressure api.Pressure
	usage    statsapi.Summary
}

// Status implements nodeinfo.Node.
func (n *node) Status(context.Context) api.Status { return get(&n.mu, &n.status) }

// Healthy implements nodeinfo.Node.
func (n *node) Healthy(context.Context) error { return get(&n.mu, &n.health) }

// Hanging implements nodeinfo.Node.
func (n *node) Hanging() []string { return get(&n.mu, &n.hanging) }

// Node implements nodeinfo.Resources.
func (n *node) Node() resource.Node { return get(&n.mu, &n.machine) }

// All implements nodeinfo.Resources.
func (n *node) All() resource.Held { return get(&n.mu, &n.held) }

// Pressure implements nodeinfo.Node.
func (n *node) Pressure(_ context.Context, orders bool) api.Pressure {
	p := get(&n.mu, &n.pressure)
	if !orders {
		p.Orders = nil
	}
	return p
}

// Summary implements nodeinfo.Stats.
func (n *node) Summary(context.Context, bool) (*statsapi.Summary, error) {
	s := get(&n.mu, &n.usage)
	return &s, nil
}
