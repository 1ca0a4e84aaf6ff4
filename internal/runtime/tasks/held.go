package tasks

import (
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// held keeps the FIFOs of running containers open for writing. containerd reads the output from them, and the shim
// writes it. If the shim ends, containerd's reader must not see the end of the output.
type held struct {
	mu    sync.Mutex
	files map[string][]*os.File // by container
}

// outputs returns the FIFOs of a process's output.
func outputs(stdout, stderr string, terminal bool) (paths []string) {
	for i, path := range []string{stdout, stderr} {
		if path == "" || strings.Contains(path, "://") || i > 0 && terminal {
			continue
		}
		paths = append(paths, path)
	}
	return paths
}

// hold opens the FIFOs of a container that runs. If that fails, attached clients miss output after the end of a shim.
func (h *held) hold(id string, paths []string) {
	var files []*os.File
	for _, path := range paths {
		if file, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0); err == nil {
			files = append(files, file)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.files[id] = append(h.files[id], files...)
}

// release closes the FIFOs of a container that has ended. containerd waits for the end of the process first, then for
// the end of its output, and then deletes the container.
func (h *held) release(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, file := range h.files[id] {
		_ = file.Close()
	}
	delete(h.files, id)
}
