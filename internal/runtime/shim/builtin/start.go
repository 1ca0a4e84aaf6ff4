package builtin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// FIFO returns the path of a FIFO. The first process of a container waits for its start there. runc removes the FIFO
// when the process has started.
func FIFO(stateDir string) string { return filepath.Join(stateDir, "exec.fifo") }

// Start lets the first process of a created container execute the container's program, and waits until it does. pidfd
// is a descriptor of the process.
func Start(ctx context.Context, stateDir string, pid, pidfd int) error {
	const again = 100 // milliseconds between looks at the context and at the process
	// The process waits until the FIFO has a reader. Then it writes a byte, and executes its program.
	fifo, err := unix.Open(FIFO(stateDir), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return errors.New("cannot start an already running container")
	}
	if err != nil {
		return fmt.Errorf("open the FIFO of a container that waits: %w", err)
	}
	defer func() { _ = unix.Close(fifo) }()
	for {
		ready := []unix.PollFd{{Fd: int32(fifo), Events: unix.POLLIN}, {Fd: int32(pidfd), Events: unix.POLLIN}}
		if _, err := unix.Poll(ready, again); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for a container: %w", err)
		}
		var one [1]byte
		n, err := unix.Read(fifo, one[:]) // no byte and no error without a writer
		switch {
		case err != nil && !errors.Is(err, unix.EAGAIN):
			return fmt.Errorf("read from a container that waits: %w", err)
		case n > 0:
			return removeFIFO(stateDir)
		case ready[1].Revents != 0:
			return errors.New("container process is already dead")
		case ready[0].Revents == 0 && hasStarted(pid):
			// An earlier shim started it, and was killed before it removed the FIFO.
			return removeFIFO(stateDir)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
	}
}

func removeFIFO(stateDir string) error {
	if err := os.Remove(FIFO(stateDir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// hasStarted reports whether a process runs the container's program. Before that its name is runc:[2:INIT].
func hasStarted(pid int) bool {
	name, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
	return err == nil && !strings.HasPrefix(string(name), "runc:[")
}
