package dockerstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/utils/exec"

	"github.com/berth-run/berth/internal/base/retry"
)

// Exec runs a command in a container for a client. The error is an exec.ExitError if the exit code is not 0.
func (s *Streams) Exec(ctx context.Context, container string, cmd []string, in io.Reader, out, failed io.WriteCloser,
	terminal bool, resize <-chan remotecommand.TerminalSize) error {
	c, err := s.create(ctx, container, client.ExecCreateOptions{
		Cmd: cmd, TTY: terminal,
		AttachStdin: in != nil, AttachStdout: out != nil, AttachStderr: failed != nil && !terminal,
	})
	if err != nil {
		return err
	}
	streams, err := c.start(ctx, terminal, client.ConsoleSize{})
	if err != nil {
		return err
	}
	sizes, done := context.WithCancel(ctx)
	var resizing sync.WaitGroup
	resizing.Go(func() {
		follow(sizes, resize, func(size remotecommand.TerminalSize) error {
			_, err := s.docker.ExecResize(sizes, c.id,
				client.ExecResizeOptions{Height: uint(size.Height), Width: uint(size.Width)})
			return err
		})
	})
	defer resizing.Wait()
	defer done()
	if err := pump(ctx, streams, in, out, failed, terminal); err != nil {
		// The client no longer reads the output. A command on a terminal gets SIGHUP. Other commands end only with
		// their client's context.
		if ctx.Err() != nil {
			s.end(ctx, c, unix.SIGKILL)
		} else if terminal {
			s.end(ctx, c, unix.SIGHUP)
		}
		return fmt.Errorf("run command in container %s: %w", container, err)
	}
	code, err := c.wait(ctx)
	if _, ok := errors.AsType[*notStarted](err); ok {
		err = nil // the output has Docker's message
	}
	switch {
	case err != nil && ctx.Err() != nil:
		s.end(ctx, c, unix.SIGKILL)
		return err
	case err != nil:
		return err
	case code != 0:
		return exec.CodeExitError{Err: fmt.Errorf("exit code %d", code), Code: code}
	}
	return nil
}

// Attach connects a client to the first process of a container, until the process ends or the client leaves.
func (s *Streams) Attach(ctx context.Context, container string, in io.Reader, out, failed io.WriteCloser, terminal bool,
	resize <-chan remotecommand.TerminalSize) error {
	r, err := s.docker.ContainerAttach(ctx, container, client.ContainerAttachOptions{
		Stream: true, Stdin: in != nil, Stdout: out != nil, Stderr: failed != nil && !terminal, DetachKeys: noDetach,
	})
	if err != nil {
		return fmt.Errorf("attach to container %s: %w", container, err)
	}
	sizes, done := context.WithCancel(ctx)
	var resizing sync.WaitGroup
	resizing.Go(func() {
		follow(sizes, resize, func(size remotecommand.TerminalSize) error {
			_, err := s.docker.ContainerResize(sizes, container,
				client.ContainerResizeOptions{Height: uint(size.Height), Width: uint(size.Width)})
			return err
		})
	})
	defer resizing.Wait()
	defer done()
	if err := pump(ctx, &r.HijackedResponse, in, out, failed, terminal); err != nil {
		return fmt.Errorf("attach to container %s: %w", container, err)
	}
	return nil
}

// endOfTransmission is the character for the end of a terminal's input (Ctrl-D).
const endOfTransmission = "\x04"

// pump copies the input to Docker's streams and the output from them. It returns at the end of the output, or with an
// error if the client does not read the output or ctx ends. It does not wait for the end of the input.
func pump(ctx context.Context, streams *client.HijackedResponse, in io.Reader, out, failed io.Writer,
	terminal bool) error {
	defer streams.Close()
	stop := context.AfterFunc(ctx, streams.Close)
	if in != nil {
		go func() { // it ends with its client, whose connection the caller closes
			_, err := io.Copy(streams.Conn, in)
			switch {
			case err != nil:
			case terminal:
				// Docker ends the output of a terminal together with its input.
				_, _ = io.WriteString(streams.Conn, endOfTransmission)
			default:
				_ = streams.CloseWrite()
			}
		}()
	}
	err := receive(streams.Reader, out, failed, terminal)
	if !stop() {
		return context.Cause(ctx)
	}
	return err
}

func receive(from io.Reader, out, failed io.Writer, terminal bool) (err error) {
	if out == nil {
		out = io.Discard
	}
	if failed == nil {
		failed = io.Discard
	}
	if terminal {
		_, err = io.Copy(out, from)
	} else {
		_, err = stdcopy.StdCopy(out, failed, from)
	}
	return err
}

// follow sets each size of the client's terminal, until the channel is closed or ctx ends. Docker refuses a size until
// it has started the process. So follow repeats a size up to tries times, until Docker accepts it or the terminal has
// another size.
func follow(ctx context.Context, sizes <-chan remotecommand.TerminalSize, set func(remotecommand.TerminalSize) error) {
	const tries, pause = 50, 20 * time.Millisecond
	for {
		size, ok := next(ctx, sizes)
		for try := 0; ok && try < tries && set(size) != nil; try++ {
			if retry.Sleep(ctx, pause) != nil {
				return
			}
			select {
			case size, ok = <-sizes:
			default:
			}
		}
		if !ok {
			return
		}
	}
}

func next(ctx context.Context, sizes <-chan remotecommand.TerminalSize) (size remotecommand.TerminalSize, ok bool) {
	select {
	case size, ok = <-sizes:
	case <-ctx.Done():
	}
	return size, ok
}
