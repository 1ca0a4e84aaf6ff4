package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/v2/core/runtime"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
)

const (
	// exitTime is how long the exit of a deleted container stays on disk, at least. The CRI plugin records it right
	// after the deletion. If the agent is killed before, the next agent finds the exit.
	exitTime = time.Minute
	// exitPeriod is the time between two removals of exits. Those of many containers wake the agent once, because a
	// wake costs several times as much as a removal.
	exitPeriod = 10 * time.Second
)

// exitFile is where the shim has written the exit of a deleted container.
func (m *Manager) exitFile(namespace, id string) string {
	return filepath.Join(m.config.exits(), namespace, id)
}

// readExit reads the exit of a deleted container. The error is errdefs.ErrNotFound if there is none. A loss of power
// may have emptied the file, which is a valid message without a time. For the CRI plugin a container without a time of
// its end runs.
func (m *Manager) readExit(namespace, id string) (*runtime.Exit, error) {
	content, err := os.ReadFile(m.exitFile(namespace, id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("task %s: %w", id, errdefs.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	var r taskapi.DeleteResponse
	err = proto.Unmarshal(content, &r)
	if err == nil && r.GetExitedAt() == nil {
		err = errors.New("it has no time")
	}
	if err != nil {
		return nil, fmt.Errorf("read exit of task %s: %w", id, err)
	}
	return exitOf(&r), nil
}

func exitOf(r *taskapi.DeleteResponse) *runtime.Exit {
	return &runtime.Exit{Pid: r.GetPid(), Status: r.GetExitStatus(), Timestamp: r.GetExitedAt().AsTime()}
}

// dropExit removes the exit of a deleted container after exitTime. The CRI plugin has recorded it by then.
func (m *Manager) dropExit(namespace, id string) {
	after := time.Now().Add(exitTime).Truncate(exitPeriod).Add(exitPeriod)
	time.AfterFunc(time.Until(after), func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if _, ok := m.own[id]; !ok { // else a new container has this ID
			_ = os.Remove(m.exitFile(namespace, id)) // the next agent tries again
		}
		delete(m.ended, id)
	})
}

// recorded reports whether the CRI plugin has recorded the end of a container, or does not know the container.
func (m *Manager) recorded(id string) bool {
	content, err := os.ReadFile(filepath.Join(m.config.records(), id, "status"))
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	var status struct{ FinishedAt int64 }
	return err == nil && json.Unmarshal(content, &status) == nil && status.FinishedAt > 0
}

// loadExits finds the exits of containers that were deleted shortly before this agent started. They appear as stopped
// tasks if the CRI plugin has not recorded their end. The plugin then records it. It must not see other stopped tasks:
// it opens their logs, and a log that was replaced by a FIFO blocks its start.
func (m *Manager) loadExits() error {
	files, err := filepath.Glob(filepath.Join(m.config.exits(), "*", "*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		namespace, id := filepath.Base(filepath.Dir(file)), filepath.Base(file)
		if strings.HasPrefix(id, ".") { // it was being written
			if err := os.Remove(file); err != nil {
				return err
			}
			continue
		}
		if m.recorded(id) {
			if err := os.Remove(file); err != nil {
				return err
			}
			continue
		}
		exit, err := m.readExit(namespace, id)
		if err != nil {
			m.config.Log.Error("exit of a container is unreadable, its code is unknown", "container", id, "err", err)
		} else if _, ok := m.own[id]; !ok {
			m.ended[id] = &ended{gone{id}, namespace, *exit}
		}
		m.dropExit(namespace, id)
	}
	return nil
}

// ended is a container whose task was deleted.
type ended struct {
	gone
	namespace string
	exit      runtime.Exit
}

// Namespace implements runtime.Task.
func (e *ended) Namespace() string { return e.namespace }

// State implements runtime.Process.
func (e *ended) State(context.Context) (runtime.State, error) {
	return runtime.State{
		Status: runtime.StoppedStatus, Pid: e.exit.Pid, ExitStatus: e.exit.Status, ExitedAt: e.exit.Timestamp,
	}, nil
}

// Wait implements runtime.Process.
func (e *ended) Wait(context.Context) (*runtime.Exit, error) {
	exit := e.exit
	return &exit, nil
}

// PID implements runtime.Task.
func (e *ended) PID(context.Context) (uint32, error) { return e.exit.Pid, nil }

// gone answers calls that need a process: there is none.
type gone struct{ id string }

func (g gone) err() error { return fmt.Errorf("task %s has ended: %w", g.id, errdefs.ErrNotFound) }

// ID implements runtime.Process.
func (g gone) ID() string { return g.id }

// Kill implements runtime.Process.
func (g gone) Kill(context.Context, uint32, bool) error { return g.err() }

// ResizePty implements runtime.Process.
func (g gone) ResizePty(context.Context, runtime.ConsoleSize) error { return g.err() }

// CloseIO implements runtime.Process.
func (g gone) CloseIO(context.Context) error { return g.err() }

// Start implements runtime.Process.
func (g gone) Start(context.Context) error { return g.err() }

// Pause implements runtime.Task.
func (g gone) Pause(context.Context) error { return g.err() }

// Resume implements runtime.Task.
func (g gone) Resume(context.Context) error { return g.err() }

// Exec implements runtime.Task.
func (g gone) Exec(context.Context, string, runtime.ExecOpts) (runtime.ExecProcess, error) {
	return nil, g.err()
}

// Pids implements runtime.Task.
func (g gone) Pids(context.Context) ([]runtime.ProcessInfo, error) { return nil, nil }

// Checkpoint implements runtime.Task.
func (g gone) Checkpoint(context.Context, string, *types.Any) error { return g.err() }

// Update implements runtime.Task.
func (g gone) Update(context.Context, *types.Any, map[string]string) error { return g.err() }

// Process implements runtime.Task.
func (g gone) Process(context.Context, string) (runtime.ExecProcess, error) { return nil, g.err() }

// Stats implements runtime.Task.
func (g gone) Stats(context.Context) (*types.Any, error) { return nil, g.err() }
