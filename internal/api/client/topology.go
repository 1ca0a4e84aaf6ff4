package client

import (
	"context"
	"net/http"

	"github.com/berth-run/berth/internal/api"
)

// Topology is what the agent's machine is built of and who holds what of it.
func Topology(ctx context.Context, c *Client) (*api.Topology, error) {
	t := new(api.Topology)
	return t, c.call(ctx, http.MethodGet, "/berth/v1/topology", nil, nil, t)
}
