package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// errSilent is the cause of the end of a request to an agent that answers nothing.
var errSilent = errors.New("the agent answers nothing")

// Within returns a client that ends a request if the agent does not answer within this time: neither the request nor a
// second one, which needs no work. So the limit finds an agent that hangs, and a request that takes long has no limit.
// A stream is answered when it begins. 0 means no limit.
func (c *Client) Within(limit time.Duration) *Client {
	limited := *c
	limited.limit = limit
	return &limited
}

// exchange is a request that waits for its answer.
type exchange struct {
	// ctx ends the request.
	ctx context.Context
	// answered says that the answer has come.
	answered func()
	// end releases ctx. The answer cannot be read after that.
	end context.CancelFunc
}

// begin returns the exchange of a new request.
func (c *Client) begin(ctx context.Context) exchange {
	if c.limit <= 0 {
		return exchange{ctx, func() {}, func() {}}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go c.observe(ctx, done, cancel)
	return exchange{ctx, sync.OnceFunc(func() { close(done) }), func() { cancel(nil) }}
}

// observe asks the agent for an answer after half of the limit, again and again until done is closed. If the second
// half passes without an answer, observe calls cancel.
func (c *Client) observe(ctx context.Context, done <-chan struct{}, cancel context.CancelCauseFunc) {
	half := time.NewTicker(c.limit / 2)
	defer half.Stop()
	for {
		select {
		case <-done:
			return
		case <-ctx.Done():
			return
		case <-half.C:
		}
		if c.hangs(ctx) {
			select {
			case <-done:
			default:
				cancel(errSilent)
			}
			return
		}
	}
}

// hangs reports whether half of the limit passes without an answer to the request for the list of routes.
func (c *Client) hangs(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, c.limit/2)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://berth/", nil)
	if err != nil {
		return false
	}
	resp, err := c.http.Do(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	return errors.Is(err, context.DeadlineExceeded)
}

// silent returns the error of an exchange that ended because the agent answers nothing, or nil.
func (c *Client) silent(e exchange) error {
	if !errors.Is(context.Cause(e.ctx), errSilent) {
		return nil
	}
	return Next(fmt.Errorf("ask the agent at %s: no answer within %s", c.socket, c.limit),
		`see whether its process is stopped ("systemctl status berth") and what its log says, or give it more time `+
			"with --request-timeout")
}

// answerBody is the body of an answer. Its end releases the exchange.
type answerBody struct {
	io.ReadCloser
	end func()
}

// Close implements io.Closer.
func (b answerBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
