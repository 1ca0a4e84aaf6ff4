package client

import (
	"context"
	"net/http"

	"github.com/berth-run/berth/internal/api"
)

// Topology returns the CPUs, memory and devices of the agent's machine, and which pods hold them.
func Topology(ctx context.Context, c *Client) (*api.Topology, error) {
	t := new(api.Topology)
	return t, c.call(ctx, http.MethodGet, "/berth/v1/topology", nil, nil, t)
}
