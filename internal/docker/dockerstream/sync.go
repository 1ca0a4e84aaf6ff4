package dockerstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxOutput is how much ExecSync returns of each output of a command. The rest is dropped. The CRI plugin of containerd
// has the same limit.
const maxOutput = 16 << 20

// killTimeout limits how long the kill of a command may take. It takes that long only if Docker does not answer.
const killTimeout = 2 * time.Minute

// ExecSync runs a command in a container and returns its output and exit code. The command is killed at its timeout, in
// seconds, and when ctx ends.
func (s *Streams) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	limited := ctx
	if r.GetTimeout() > 0 {
		timeout := time.Duration(r.GetTimeout()) * time.Second
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeoutCause(ctx, timeout, status.Errorf(codes.DeadlineExceeded,
			"command in container %s: timeout %s exceeded", r.GetContainerId(), timeout))
		defer cancel()
	}
	c, err := s.create(limited, r.GetContainerId(),
		client.ExecCreateOptions{Cmd: r.GetCmd(), AttachStdout: true, AttachStderr: true})
	if err != nil {
		return nil, err
	}
	var out, failed bounded
	code, err := s.collect(limited, c, &out, &failed)
	if e, ok := errors.AsType[*notStarted](err); ok {
		return nil, fmt.Errorf("run command in container %s: %w (exit code %d): %s", r.GetContainerId(), e, code,
			strings.TrimSpace(out.String()))
	}
	if err != nil {
		s.end(ctx, c, unix.SIGKILL)
		if limited.Err() != nil {
			return nil, context.Cause(limited)
		}
		return nil, err
	}
	return &runtimeapi.ExecSyncResponse{Stdout: out.Bytes(), Stderr: failed.Bytes(), ExitCode: int32(code)}, nil
}

// collect starts a command, reads its output, and waits for its end.
func (s *Streams) collect(ctx context.Context, c *command, out, failed *bounded) (code int, err error) {
	streams, err := c.start(ctx, false, client.ConsoleSize{})
	if err != nil {
		return 0, err
	}
	defer streams.Close()
	stop := context.AfterFunc(ctx, streams.Close)
	_, err = stdcopy.StdCopy(out, failed, streams.Reader)
	if !stop() {
		return 0, context.Cause(ctx)
	}
	if err != nil {
		return 0, fmt.Errorf("read output of command in container %s: %w", c.container, err)
	}
	return c.wait(ctx)
}

// end sends a signal to the process group of a command. It returns when that is done, or after a second. Then it
// continues in the background, because Docker has not yet reported the command's process.
func (s *Streams) end(ctx context.Context, c *command, signal unix.Signal) {
	const patience = time.Second
	done := make(chan struct{})
	s.kills.Go(func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
		defer cancel()
		found, err := c.signal(ctx, signal)
		if err != nil {
			s.log.Warn("cannot end a command in a container, it may run on", "container", c.container, "err", err)
		} else if found {
			s.log.Debug("command in a container ended", "container", c.container, "signal", signal)
		}
	})
	select {
	case <-done:
	case <-time.After(patience):
	}
}

// bounded keeps the first maxOutput bytes of its input.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if room := maxOutput - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}
