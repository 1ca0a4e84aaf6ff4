package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"

	"github.com/berth-run/berth/internal/server/api"
)

// Streams are the ends of a command in a container. nil ends are not connected.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Sizes delivers the sizes of a terminal; nil without one.
	Sizes remotecommand.TerminalSizeQueue
}

// ExitError is the end of a command that did not exit with 0.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return fmt.Sprintf("command ended with exit code %d", e.Code) }

// Exec runs a command in a container until it ends. A command that exits with
// another code than 0 gives an *ExitError. The agent only prepares it: the
// streams go straight to the container runtime.
func (c *Client) Exec(ctx context.Context, key types.NamespacedName, container string, command []string, tty bool, streams Streams) error {
	opts := corev1.PodExecOptions{
		Container: container,
		Command:   command,
		Stdin:     streams.In != nil,
		Stdout:    streams.Out != nil,
		Stderr:    streams.Err != nil && !tty,
		TTY:       tty,
	}
	var prepared api.Exec
	if err := c.call(ctx, http.MethodPost, podPath(key)+"/exec", execQuery(opts), nil, &prepared); err != nil {
		return err
	}
	target, err := url.Parse(prepared.URL)
	if err != nil {
		return fmt.Errorf("connect to command: %w", err)
	}
	executor, err := remotecommand.NewSPDYExecutor(&rest.Config{Host: target.Scheme + "://" + target.Host}, http.MethodPost, target)
	if err != nil {
		return fmt.Errorf("connect to command: %w", err)
	}
	options := remotecommand.StreamOptions{Stdin: streams.In, Stdout: streams.Out, Tty: tty, TerminalSizeQueue: streams.Sizes}
	if opts.Stderr {
		options.Stderr = streams.Err
	}
	err = executor.StreamWithContext(ctx, options)
	if exit, ok := errors.AsType[utilexec.CodeExitError](err); ok {
		return &ExitError{Code: exit.Code}
	}
	if err != nil {
		return fmt.Errorf("run command in pod %s: %w", key, err)
	}
	return nil
}

func execQuery(o corev1.PodExecOptions) url.Values {
	q := url.Values{"command": o.Command}
	set(q, "container", o.Container)
	for name, on := range map[string]bool{"stdin": o.Stdin, "stdout": o.Stdout, "stderr": o.Stderr, "tty": o.TTY} {
		q.Set(name, fmt.Sprint(on))
	}
	return q
}
