package tasks

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"
)

// A call that its context ends returns the context's error. A probe whose command exceeds its timeout fails because of
// this error, and any other one would say nothing about the container.
func TestErrorOfTheContextIsKept(t *testing.T) {
	shim, agent := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, shim) }() // it reads requests and answers nothing
	client := ttrpc.NewClient(agent)
	t.Cleanup(func() {
		if err := errors.Join(client.Close(), shim.Close()); err != nil {
			t.Error(err)
		}
	})
	l := &link{client: client}
	l.checking.Store(true) // so that no other shim is started
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for _, ctx := range []context.Context{ended, late} {
		err := l.call(ctx, func(shim taskapi.TTRPCTaskService, _ bool) error {
			_, err := shim.State(ctx, &taskapi.StateRequest{})
			return err
		})
		if !errors.Is(err, ctx.Err()) {
			t.Errorf("got %v, want %v", err, ctx.Err())
		}
	}
}
