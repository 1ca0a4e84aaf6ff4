package fifos

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Held keeps FIFOs of running containers open for writing: the ones from which containerd itself reads the output, of
// containers without a log and of an earlier agent. If the shim ends, containerd's reader must not see the end of the
// output.
//
// It also finds out whether the output of a container that has ended ends too. containerd waits for that without a
// bound. But a shim that was killed keeps its descriptors while one of its threads waits for a file system that does
// not answer.
type Held struct {
	mu    sync.Mutex
	files map[string][]*os.File // by container
	// ended has the containers that have ended and are not deleted yet.
	ended map[string]ending
}

// ending is the output of a container that has ended.
type ending struct {
	at time.Time
	// readers have the FIFOs open for reading, since a time when Held was a writer. Only then does the kernel report
	// to a reader that the last writer has gone.
	readers []*os.File
}

// endingOf follows the end of the output of a container that has ended. files are its FIFOs, open for writing. endingOf
// closes them.
func endingOf(files []*os.File) ending {
	end := ending{at: time.Now()}
	for _, file := range files {
		reader, err := os.OpenFile(file.Name(), os.O_RDONLY|unix.O_NONBLOCK, 0)
		_ = file.Close()
		if err == nil {
			end.readers = append(end.readers, reader)
		}
	}
	return end
}

// Close closes FIFOs.
func Close[F io.Closer](files []F) {
	for _, file := range files {
		_ = file.Close()
	}
}

// NewHeld makes a Held without containers.
func NewHeld() *Held { return &Held{files: map[string][]*os.File{}, ended: map[string]ending{}} }

// Outputs returns the FIFOs from which containerd reads a container's output. It does not read those in the bundle.
func Outputs(bundle, stdout, stderr string, terminal bool) (paths []string) {
	for i, path := range []string{stdout, stderr} {
		if path == "" || strings.Contains(path, "://") || i > 0 && terminal || filepath.Dir(path) == bundle {
			continue
		}
		paths = append(paths, path)
	}
	return paths
}

// Hold opens the FIFOs of a container that runs. If that fails, attached clients miss output after the end of a shim.
func (h *Held) Hold(id string, paths []string) {
	files := openAll(paths)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.files[id] = append(h.files[id], files...)
}

// openAll opens FIFOs for reading and writing, if they are there. They are only kept open: Go's poller does not watch
// them, since it would wake up this process with each output.
func openAll(paths []string) (files []*os.File) {
	for _, path := range paths {
		if fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
			files = append(files, os.NewFile(uintptr(fd), path))
		}
	}
	return files
}

// Release stops writing to the output of a container that has ended. containerd waits for the end of the process first,
// then for the end of its output, and then deletes the container.
func (h *Held) Release(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	files, running := h.files[id]
	if !running {
		return
	}
	delete(h.files, id)
	h.ended[id] = endingOf(files)
}

// Forget closes all files of a container that is deleted.
func (h *Held) Forget(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	Close(h.files[id])
	Close(h.ended[id].readers)
	delete(h.files, id)
	delete(h.ended, id)
}

// outputPatience is the time between the end of a container and the end of its output. The shim waits up to 5 s for a
// file system that does not answer before it ends the output. A container may have ended while the agent was away; then
// the reader gets readPatience.
const (
	outputPatience = 7 * time.Second
	readPatience   = 2 * time.Second
)

// until is how long to wait for the end of the output of a container that has exited at this time.
func (e ending) until(exited time.Time) time.Time {
	wait := min(max(exited.Add(outputPatience).Sub(e.at), readPatience), outputPatience) // the clock may have changed
	return e.at.Add(wait)
}

// OutputEnds waits until a container that has exited has no writer of its output any more. It returns false if there is
// one when that is over. It does not wait for the output of a container that runs.
func (h *Held) OutputEnds(id string, exited time.Time) bool {
	h.mu.Lock()
	end := h.ended[id]
	h.mu.Unlock()
	return end.await(exited)
}

// await waits until the output of a container that has exited has no writer any more. It returns false if there is one
// when that is over.
func (e ending) await(exited time.Time) bool {
	for _, reader := range e.readers {
		conn, err := reader.SyscallConn()
		gone := false
		if err == nil { // a deadline that has passed ends Read before it looks
			err = conn.Control(func(fd uintptr) { gone = hasNoWriter(fd) })
		}
		if err == nil && !gone && reader.SetReadDeadline(e.until(exited)) == nil {
			err = conn.Read(hasNoWriter)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return false
		}
	}
	return true
}

// hasNoWriter reports whether the FIFO of a reader has no writer any more. There may still be output in it.
func hasNoWriter(fd uintptr) bool {
	files := []unix.PollFd{{Fd: int32(fd)}}
	for {
		_, err := unix.Poll(files, 0)
		if !errors.Is(err, unix.EINTR) {
			return err != nil || files[0].Revents&unix.POLLHUP != 0
		}
	}
}
