package fifos

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/fifo"
	"golang.org/x/sys/unix"
)

// In returns the FIFOs in a bundle for the clients of a container with a log, by file descriptor: its standard input,
// and the copies that the shim makes of its standard output and standard error.
func In(bundle string) [3]string {
	return [3]string{
		filepath.Join(bundle, "stdin"), filepath.Join(bundle, "stdout.copy"), filepath.Join(bundle, "stderr.copy"),
	}
}

// Piped reports whether a container has the FIFOs of its bundle. containerd's own FIFOs are for containers without a
// log, and for containers of an earlier agent.
func Piped(s *taskapi.StateResponse) bool { return filepath.Dir(s.Stdout) == s.Bundle }

// HoldOutput opens the output of a new container until release. Without it, the reader would take the end of the shim
// for the end of the output. It would then be gone when the next shim creates the container.
func HoldOutput(ctx context.Context, r *taskapi.CreateTaskRequest) (release func(), err error) {
	var files []io.Closer
	for _, path := range Outputs(r.Bundle, r.Stdout, r.Stderr, r.Terminal) {
		file, err := fifo.OpenFifo(ctx, path, unix.O_WRONLY, 0) // waits for the reader, as the shim does
		if err != nil {
			Close(files)
			return nil, fmt.Errorf("open output %s: %w", path, err)
		}
		files = append(files, file)
	}
	return func() { Close(files) }, nil
}

// Make makes the FIFOs of a new container in its bundle, and has the shim use them. Until release the output has a
// reader, as the shim expects.
func Make(r *taskapi.CreateTaskRequest) (release func(), err error) {
	const mode = 0o600
	paths := In(r.Bundle)
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
		Close(files)
		return nil, fmt.Errorf("open the copies of a container's output in %s", r.Bundle)
	}
	if r.Stdin != "" {
		r.Stdin = paths[0]
	}
	r.Stdout, r.Stderr = paths[1], paths[2]
	return func() { Close(files) }, nil
}

// SkipInput lets containerd open its end of a new container's input, which nobody will read. It would wait for a reader
// as long as it runs.
func SkipInput(ctx context.Context, path string) error {
	if path == "" {
		return nil
	}
	reader, err := fifo.OpenFifo(ctx, path, unix.O_RDONLY, 0) // waits for containerd
	if err != nil {
		return fmt.Errorf("open input %s: %w", path, err)
	}
	return reader.Close()
}

// KeepLogs opens the FIFOs from which the shim writes the log of a container. Without a shim, the kernel would drop
// what is in them when the container ends.
func KeepLogs(bundle string) []*os.File {
	return openAll([]string{filepath.Join(bundle, "stdout"), filepath.Join(bundle, "stderr")}) // as in package stdio
}

// AwaitCopies waits until the shim has ended the copies of the output of a container that has exited, and so its log is
// complete. It returns false if that takes some seconds, because the file system of the log does not answer.
func AwaitCopies(bundle string, exited time.Time) bool {
	copies := In(bundle)
	end := endingOf(openAll(copies[1:]))
	defer Close(end.readers)
	return end.await(exited)
}
