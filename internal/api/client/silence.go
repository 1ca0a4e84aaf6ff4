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
func Within(c *Client, limit time.Duration) *Client {
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
func begin(ctx context.Context, c *Client) exchange {
	if c.limit <= 0 {
		return exchange{ctx, func() {}, func() {}}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go observe(ctx, c, done, cancel)
	return exchange{ctx, sync.OnceFunc(func() { close(done) }), func() { cancel(nil) }}
}

// observe asks the agent for an answer after half of the limit, again and again until done is closed. If the second
// half passes without an answer, observe calls cancel.
func observe(ctx context.Context, c *Client, done <-chan struct{}, cancel context.CancelCauseFunc) {
	half := time.NewTicker(halfOf(c.limit))
	defer half.Stop()
	for {
		select {
		case <-done:
			return
		case <-ctx.Done():
			return
		case <-half.C:
		}
		if hangs(ctx, c) {
			select {
			case <-done:
			default:
				cancel(errSilent)
			}
			return
		}
	}
}

// halfOf returns half of a limit, which may be a nanosecond.
func halfOf(limit time.Duration) time.Duration { return max(limit/2, 1) }

// hangs reports whether half of the limit passes without an answer to the request for the list of routes.
func hangs(ctx context.Context, c *Client) bool {
	ctx, cancel := context.WithTimeout(ctx, halfOf(c.limit))
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
func silent(c *Client, e exchange) error {
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
