package agent

import "github.com/berth-run/berth/internal/resource"

// inventory is what the node has to give and what pods hold of it, for those who
// look.
type inventory struct {
	node resource.Node
	held func() resource.Held
}

// Node implements server.Resources.
func (i inventory) Node() resource.Node { return i.node }

// All implements server.Resources.
func (i inventory) All() resource.Held { return i.held() }
