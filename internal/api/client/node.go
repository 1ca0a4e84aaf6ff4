package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berth-run/berth/internal/api"
)

// Pressure returns how far the agent's node is from evicting pods. With orders the agent also measures the pods and
// returns the order of their eviction.
func Pressure(ctx context.Context, c *Client, orders bool) (*api.Pressure, error) {
	p := new(api.Pressure)
	return p, c.call(ctx, http.MethodGet, "/berth/v1/pressure", url.Values{"orders": {strconv.FormatBool(orders)}}, nil,
		p)
}

// Usage returns the usage of the agent's node and its pods. Brief leaves out all but CPU and memory.
func Usage(ctx context.Context, c *Client, brief bool) (*statsapi.Summary, error) {
	s := new(statsapi.Summary)
	return s, c.call(ctx, http.MethodGet, "/berth/v1/stats",
		url.Values{"only_cpu_and_memory": {strconv.FormatBool(brief)}}, nil, s)
}
