package tasks

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"golang.org/x/sys/unix"
)

// copiesIn returns the FIFOs in a bundle to which the shim copies the output of a container with a log: standard output
// and standard error.
func copiesIn(bundle string) []string {
	return []string{filepath.Join(bundle, "stdout.copy"), filepath.Join(bundle, "stderr.copy")}
}

// copied reports whether the shim copies the output of a container to the FIFOs of its bundle. containerd's own FIFOs
// are for containers with a terminal, with standard input or without a log, and for containers of an earlier agent.
func copied(s *taskapi.StateResponse) bool { return filepath.Dir(s.Stdout) == s.Bundle }

// Copies returns the FIFOs to which the shim copies the output of a container while they have a reader: standard output
// and standard error. ok is false for a container whose output containerd reads, and for one that is gone.
func (m *Manager) Copies(ctx context.Context, id string) (paths []string, ok bool) {
	namespace, err := namespaces.NamespaceRequired(ctx)
	if err != nil || !m.owns(id) {
		return nil, false
	}
	paths = copiesIn(m.config.bundle(namespace, id))
	_, err = os.Stat(paths[0])
	return paths, err == nil
}

// makeCopies makes the FIFOs for the output of a new container, and has the shim copy to them. Until release they have
// a reader, as the shim expects.
func makeCopies(r *taskapi.CreateTaskRequest) (release func(), err error) {
	const mode = 0o600
	paths := copiesIn(r.Bundle)
	for _, path := range paths {
		if err := unix.Mkfifo(path, mode); err != nil {
			return nil, &os.PathError{Op: "mkfifo", Path: path, Err: err}
		}
	}
	files := openAll(paths)
	if len(files) < len(paths) {
		closeAll(files)
		return nil, fmt.Errorf("open the copies of a container's output in %s", r.Bundle)
	}
	r.Stdout, r.Stderr = paths[0], paths[1]
	return func() { closeAll(files) }, nil
}

// awaitLog waits until the log of a container that has ended is complete. The shim then ends the copies of the output.
// A log whose file system does not answer is waited for some seconds.
func (p *process) awaitLog(ctx context.Context, s *taskapi.StateResponse) {
	_, _ = p.wait(ctx) // until then the shim may still copy
	end := endingOf(openAll(copiesIn(s.Bundle)))
	defer closeAll(end.readers)
	if !end.await(s.ExitedAt.AsTime()) {
		p.shim.config.Log.Warn("log of an ended container is not complete, not waiting for it", "container",
			p.container)
	}
}
