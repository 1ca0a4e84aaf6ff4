package servertest

import (
	"context"
	"sync"

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
}

// Status implements server.Node.
func (n *node) Status(context.Context) api.Status { return get(&n.mu, &n.status) }

// Healthy implements server.Node.
func (n *node) Healthy(context.Context) error { return get(&n.mu, &n.health) }

// Hanging implements server.Node.
func (n *node) Hanging() []string { return get(&n.mu, &n.hanging) }

// Node implements server.Resources.
func (n *node) Node() resource.Node { return get(&n.mu, &n.machine) }

// All implements server.Resources.
func (n *node) All() resource.Held { return get(&n.mu, &n.held) }
