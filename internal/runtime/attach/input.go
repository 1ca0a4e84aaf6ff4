package attach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/containerd/containerd/v2/core/runtime"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// container is a container with a client.
type container struct {
	id       string
	task     runtime.Task
	terminal bool
}

// openInput opens the standard input of a container for a client. The error is fs.ErrNotExist for a container without
// input, and for one whose input has ended.
func (s *Server) openInput(path string) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0) // one that only writes needs a reader
	if err != nil {
		return nil, err
	}
	s.inputs[file] = true
	return file, nil
}

// closeInput closes a client's end of an input. A write to it that waits for the container fails.
func (s *Server) closeInput(file *os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.inputs, file)
	_ = file.Close()
}

// send copies a client's input to a container. When the input ends, the client leaves. But if the container has its
// standard input only once, and no terminal, the input of the container ends, and the client stays for the output.
func (s *Server) send(ctx context.Context, c container, from io.Reader, to *os.File) (leaves bool, err error) {
	if _, err := io.Copy(to, from); errors.Is(err, os.ErrClosed) { // also if another client has ended the input
		return false, nil
	}
	if c.terminal {
		return true, nil
	}
	once, err := s.hasInputOnce(ctx, c.id)
	if err != nil || !once {
		return true, err
	}
	if err := s.endInput(ctx, c, to.Name()); err != nil {
		return true, fmt.Errorf("end the input of the container: %w", err)
	}
	return false, nil
}

// endInput ends the standard input of a container for good. Later clients find no input.
func (s *Server) endInput(ctx context.Context, c container, path string) error {
	if err := s.removeInput(path); err != nil {
		return err
	}
	if err := c.task.CloseIO(ctx); !errdefs.IsNotFound(err) {
		return err
	}
	return nil // the container has ended
}

// removeInput removes an input, and closes it for all its clients.
func (s *Server) removeInput(path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for file := range s.inputs {
		if file.Name() == path {
			_ = file.Close() // its client deletes it from inputs
		}
	}
	return os.Remove(path)
}

// hasInputOnce reports whether the standard input of a container ends with its first client (stdinOnce).
func (s *Server) hasInputOnce(ctx context.Context, id string) (bool, error) {
	answer, err := s.containers.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return false, fmt.Errorf("get the container's configuration: %w", err)
	}
	var info struct {
		Config struct {
			StdinOnce bool `json:"stdin_once"`
		} `json:"config"`
	}
	if err := json.Unmarshal([]byte(answer.GetInfo()["info"]), &info); err != nil {
		return false, fmt.Errorf("decode the container's configuration: %w", err)
	}
	return info.Config.StdinOnce, nil
}

// follow gives the terminal of a container each size of a client's terminal, until ctx ends.
func follow(ctx context.Context, sizes <-chan remotecommand.TerminalSize, task runtime.Process) {
	for {
		select {
		case size, ok := <-sizes:
			if !ok {
				return
			}
			if size.Width == 0 || size.Height == 0 { // the client does not know it
				continue
			}
			// If this fails, the terminal keeps its size until the client's changes again.
			_ = task.ResizePty(ctx, runtime.ConsoleSize{Width: uint32(size.Width), Height: uint32(size.Height)})
		case <-ctx.Done():
			return
		}
	}
}
