package client

import (
	"context"
	"encoding/json"
	"iter"
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

// WatchUsage yields what pods use: at once, and after each measurement of the agent. CPU may be missing in the first
// one. The sequence ends when ctx ends. If the agent ends first, it yields an error.
func WatchUsage(ctx context.Context, c *Client) iter.Seq2[api.Usage, error] {
	return func(yield func(api.Usage, error) bool) {
		resp, err := c.Open(ctx, "/berth/v1/usage", nil)
		if err != nil {
			yield(api.Usage{}, err)
			return
		}
		defer resp.Body.Close()
		for lines := json.NewDecoder(resp.Body); ; {
			var u api.Usage
			err := lines.Decode(&u)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				err = c.connectError(unexpectedEnd(err))
			}
			if !yield(u, err) || err != nil {
				return
			}
		}
	}
}
