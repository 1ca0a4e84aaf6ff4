package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"

	"github.com/berth-run/berth/internal/api"
)

// Streams are the local ends of a command in a container. A nil stream is not connected.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Sizes reports the sizes of the local terminal. It is nil without one.
	Sizes remotecommand.TerminalSizeQueue
}

// ExitError means that a command ended with an exit code other than 0.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return fmt.Sprintf("command ended with exit code %d", e.Code) }

// Container is a container of a running pod.
type Container struct {
	pod  Pod
	name string
}

// Container returns a handle of one of the pod's containers. An empty name stands for the pod's only container.
func (p Pod) Container(name string) Container { return Container{p, name} }

// Exec runs a command in the container and returns when it ends. An exit code other than 0 gives an
// *ExitError. The agent only prepares the command. The streams go straight to the container runtime.
func (c Container) Exec(ctx context.Context, command []string, tty bool, streams Streams) error {
	q := streamQuery(streams, tty)
	set(q, "container", c.name)
	q["command"] = command
	q.Set("tty", fmt.Sprint(tty))
	err := stream(ctx, c.pod.client, c.pod.path()+"/exec", q, tty, streams)
	if err != nil {
		return fmt.Errorf("run command in pod %s: %w", c.pod.key, err)
	}
	return nil
}

// Attach connects to the container's process and returns when that ends. tty says whether the process has a
// terminal. With detach it also returns soon after the input's end; without, the output goes on. The first is for
// containers whose own input stays open then (stdinOnce: false). If Attach returns before the process has ended, the
// last output may still be on its way to the streams.
func (c Container) Attach(ctx context.Context, tty, detach bool, streams Streams) error {
	q := streamQuery(streams, tty)
	set(q, "container", c.name)
	if detach && streams.In != nil {
		detached, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		ctx, streams.In = detached, &input{Reader: streams.In, detach: cancel}
	}
	err := stream(ctx, c.pod.client, c.pod.path()+"/attach", q, tty, streams)
	if err != nil && !errors.Is(context.Cause(ctx), errDetached) {
		return fmt.Errorf("attach to pod %s: %w", c.pod.key, err)
	}
	return nil
}

// prepare asks the agent for the URL of the runtime's streaming server.
func prepare(ctx context.Context, c *Client, path string, q url.Values) (*url.URL, error) {
	var prepared api.Stream
	if err := c.call(ctx, http.MethodPost, path, q, nil, &prepared); err != nil {
		return nil, err
	}
	target, err := url.Parse(prepared.URL)
	if err != nil {
		return nil, fmt.Errorf("connect streams: %w", err)
	}
	return target, nil
}

func stream(ctx context.Context, c *Client, path string, q url.Values, tty bool, streams Streams) error {
	target, err := prepare(ctx, c, path, q)
	if err != nil {
		return err
	}
	executor, status, err := newExecutor(target)
	if err != nil {
		return fmt.Errorf("connect streams: %w", err)
	}
	options := remotecommand.StreamOptions{Stdin: streams.In, Stdout: streams.Out, Tty: tty,
		TerminalSizeQueue: streams.Sizes}
	if !tty {
		options.Stderr = streams.Err
	}
	err = executor.StreamWithContext(ctx, options)
	if exit, ok := errors.AsType[utilexec.CodeExitError](err); ok {
		return &ExitError{Code: exit.Code}
	}
	if err == nil && !status.arrived.Load() {
		return Next(errCut, "see the agent's log for why it ended; the process in the container may run on")
	}
	return err
}

func streamQuery(streams Streams, tty bool) url.Values {
	q := url.Values{}
	for name, on := range map[string]bool{
		"stdin": streams.In != nil, "stdout": streams.Out != nil, "stderr": streams.Err != nil && !tty,
	} {
		q.Set(name, fmt.Sprint(on))
	}
	return q
}
