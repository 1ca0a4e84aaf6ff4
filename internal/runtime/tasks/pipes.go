package tasks

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/fifo"
	"golang.org/x/sys/unix"
)

// pipesIn returns the FIFOs in a bundle for the clients of a container with a log, by file descriptor: its standard
// input, and the copies that the shim makes of its standard output and standard error.
func pipesIn(bundle string) [3]string {
	return [3]string{
		filepath.Join(bundle, "stdin"), filepath.Join(bundle, "stdout.copy"), filepath.Join(bundle, "stderr.copy"),
	}
}

// piped reports whether a container has the FIFOs of its bundle. containerd's own FIFOs are for containers without a
// log, and for containers of an earlier agent.
func piped(s *taskapi.StateResponse) bool { return filepath.Dir(s.Stdout) == s.Bundle }

// Pipes returns the FIFOs of a container for attached clients, by file descriptor: standard input, and the copies of
// standard output and standard error, which the shim makes while they have a reader. The FIFO of the input is missing
// if the container has no input, or if the input has ended. ok is false for a container whose streams containerd has,
// and for one that is gone.
func (m *Manager) Pipes(ctx context.Context, id string) (paths [3]string, ok bool) {
	namespace, err := namespaces.NamespaceRequired(ctx)
	if err != nil || !m.owns(id) {
		return paths, false
	}
	paths = pipesIn(m.config.bundle(namespace, id))
	_, err = os.Stat(paths[1])
	return paths, err == nil
}

// makePipes makes the FIFOs of a new container in its bundle, and has the shim use them. Until release the output has a
// reader, as the shim expects.
func makePipes(r *taskapi.CreateTaskRequest) (release func(), err error) {
	const mode = 0o600
	paths := pipesIn(r.Bundle)
	for fd, path := range paths {
		if fd == 0 && r.Stdin == "" {
			continue
		}
		if err := unix.Mkfifo(path, mode); err != nil {
			return nil, &os.PathError{Op: "mkfifo", Path: path, Err: err}
		}
	}
	copies := paths[1:]
	files := openAll(copies)
	if len(files) < len(copies) {
		closeAll(files)
		return nil, fmt.Errorf("open the copies of a container's output in %s", r.Bundle)
	}
	if r.Stdin != "" {
		r.Stdin = paths[0]
	}
	r.Stdout, r.Stderr = paths[1], paths[2]
	return func() { closeAll(files) }, nil
}

// skipInput lets containerd open its end of a new container's input, which nobody will read. It would wait for a reader
// as long as it runs.
func skipInput(ctx context.Context, path string) error {
	if path == "" {
		return nil
	}
	reader, err := fifo.OpenFifo(ctx, path, unix.O_RDONLY, 0) // waits for containerd
	if err != nil {
		return fmt.Errorf("open input %s: %w", path, err)
	}
	return reader.Close()
}

// awaitLog waits until the log of a container that has ended is complete. The shim then ends the copies of the output.
// A log whose file system does not answer is waited for some seconds.
func (p *process) awaitLog(ctx context.Context, s *taskapi.StateResponse) {
	_, _ = p.wait(ctx) // until then the shim may still copy
	copies := pipesIn(s.Bundle)
	end := endingOf(openAll(copies[1:]))
	defer closeAll(end.readers)
	if !end.await(s.ExitedAt.AsTime()) {
		p.shim.config.Log.Warn("log of an ended container is not complete, not waiting for it", "container",
			p.container)
	}
}
