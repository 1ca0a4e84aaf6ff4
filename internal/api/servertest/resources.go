package servertest

import (
	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/node/resource"
)

// state is the agent's own state.
type state struct {
	status api.Status
	health error
	node   resource.Node
	held   resource.Held
}

// SetResources sets the node's resources and the ones that pods hold.
func (a *Agent) SetResources(n resource.Node, held resource.Held) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.node, a.held = n, held
}

type resources struct{ a *Agent }

func (r resources) Node() resource.Node {
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	return r.a.node
}

func (r resources) All() resource.Held {
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	return r.a.held
}
