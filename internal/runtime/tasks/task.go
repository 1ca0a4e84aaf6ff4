package tasks

import (
	"context"
	"errors"
	"fmt"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/runtime"
	"github.com/containerd/containerd/v2/pkg/identifiers"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"

	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/runtime/tasks/fifos"
)

// process is the first process of a container, or one that was executed in it.
type process struct {
	shim      *link
	container string
	exec      string // empty for the first process
}

// ID implements runtime.Process.
func (p *process) ID() string {
	if p.exec != "" {
		return p.exec
	}
	return p.container
}

// state asks the shim for the state of a process.
func (p *process) state(ctx context.Context) (s *taskapi.StateResponse, err error) {
	err = p.shim.call(ctx, func(shim taskapi.TTRPCTaskService, _ bool) (err error) {
		s, err = shim.State(ctx, &taskapi.StateRequest{ID: p.container, ExecID: p.exec})
		return err
	})
	return s, err
}

// State implements runtime.Process. For a container that has ended it waits until the log is complete. If containerd
// reads the output, and that does not end, such a container counts as deleted: containerd would wait for the end
// without a bound, and meanwhile not record that the container has ended.
func (p *process) State(ctx context.Context) (runtime.State, error) {
	s, err := p.state(ctx)
	if err != nil {
		return runtime.State{}, err
	}
	switch {
	case p.exec == "" && fifos.Piped(s):
		if s.Status == tasktypes.Status_STOPPED {
			p.awaitLog(ctx, s)
		}
		s.Stdin, s.Stdout, s.Stderr = "", "", "" // not for containerd
	case p.exec == "" && s.Status == tasktypes.Status_STOPPED &&
		!p.shim.held.OutputEnds(p.container, s.ExitedAt.AsTime()):
		p.shim.config.Log.Warn("a killed shim has the output of an ended container open, not waiting for its end",
			"container", p.container)
		return runtime.State{}, fmt.Errorf("task %s: its output does not end: %w", p.container, errdefs.ErrNotFound)
	}
	statuses := map[tasktypes.Status]runtime.Status{
		tasktypes.Status_CREATED: runtime.CreatedStatus, tasktypes.Status_RUNNING: runtime.RunningStatus,
		tasktypes.Status_STOPPED: runtime.StoppedStatus, tasktypes.Status_PAUSED: runtime.PausedStatus,
	}
	return runtime.State{
		Status: statuses[s.Status], Pid: s.Pid, ExitStatus: s.ExitStatus, ExitedAt: s.ExitedAt.AsTime(), Stdin: s.Stdin,
		Stdout: s.Stdout, Stderr: s.Stderr, Terminal: s.Terminal,
	}, nil
}

// awaitLog waits until the log of a container that has ended is complete. The shim then ends the copies of the output.
func (p *process) awaitLog(ctx context.Context, s *taskapi.StateResponse) {
	_, _ = p.wait(ctx) // until then the shim may still copy
	if !fifos.AwaitCopies(s.Bundle, s.ExitedAt.AsTime()) {
		p.shim.config.Log.Warn("log of an ended container is not complete, not waiting for it", "container",
			p.container)
	}
}

// Kill implements runtime.Process.
func (p *process) Kill(ctx context.Context, signal uint32, all bool) error {
	return p.shim.call(ctx, func(shim taskapi.TTRPCTaskService, _ bool) error {
		_, err := shim.Kill(ctx, &taskapi.KillRequest{ID: p.container, ExecID: p.exec, Signal: signal, All: all})
		return err
	})
}

// ResizePty implements runtime.Process.
func (p *process) ResizePty(ctx context.Context, size runtime.ConsoleSize) error {
	return p.shim.call(ctx, func(shim taskapi.TTRPCTaskService, _ bool) error {
		_, err := shim.ResizePty(ctx, &taskapi.ResizePtyRequest{
			ID: p.container, ExecID: p.exec, Width: size.Width, Height: size.Height,
		})
		return err
	})
}

// CloseIO implements runtime.Process.
func (p *process) CloseIO(ctx context.Context) error {
	return p.shim.call(ctx, func(shim taskapi.TTRPCTaskService, _ bool) error {
		_, err := shim.CloseIO(ctx, &taskapi.CloseIORequest{ID: p.container, ExecID: p.exec, Stdin: true})
		return err
	})
}

// Start implements runtime.Process.
func (p *process) Start(ctx context.Context) error {
	return p.shim.call(ctx, func(shim taskapi.TTRPCTaskService, _ bool) error {
		_, err := shim.Start(ctx, &taskapi.StartRequest{ID: p.container, ExecID: p.exec})
		return err
	})
}

// Wait implements runtime.Process. The CRI plugin takes every answer for the end of the process, and kills the rest of
// the container. So Wait returns only the shim's answer. While no shim answers, it retries. After the end of this
// runtime it waits until ctx ends, since the process runs on.
func (p *process) Wait(ctx context.Context) (*runtime.Exit, error) {
	const first, last = 100 * time.Millisecond, 5 * time.Second
	var exit *runtime.Exit
	var unknown error
	err := retry.Until(ctx, retry.Doubling(first, last), func(ctx context.Context) (err error) {
		exit, err = p.wait(ctx)
		switch {
		case errdefs.IsNotFound(err):
			unknown = err
			return nil
		case errors.Is(err, errClosed):
			<-ctx.Done()
		}
		return err
	}, func(err error, next time.Duration) {
		p.shim.config.Log.Warn("cannot ask the shim for the end of a process, retrying", "container", p.container,
			"exec", p.exec, "err", err, "delay", next)
	})
	if err := errors.Join(err, unknown); err != nil {
		return nil, err
	}
	return exit, nil
}

// wait is Wait without its retries.
func (p *process) wait(ctx context.Context) (*runtime.Exit, error) {
	var exit runtime.Exit
	err := p.shim.call(ctx, func(shim taskapi.TTRPCTaskService, _ bool) error {
		r, err := shim.Wait(ctx, &taskapi.WaitRequest{ID: p.container, ExecID: p.exec})
		exit = runtime.Exit{Status: r.GetExitStatus(), Timestamp: r.GetExitedAt().AsTime()}
		return err
	})
	if p.exec == "" && (err == nil || errdefs.IsNotFound(err)) {
		p.shim.held.Release(p.container)
	}
	return &exit, err
}

// Delete implements runtime.ExecProcess.
func (p *process) Delete(ctx context.Context) (*runtime.Exit, error) {
	var exit *runtime.Exit
	err := p.shim.call(ctx, func(shim taskapi.TTRPCTaskService, _ bool) error {
		r, err := shim.Delete(ctx, &taskapi.DeleteRequest{ID: p.container, ExecID: p.exec})
		exit = exitOf(r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return exit, nil
}

// task is a container of the shim.
type task struct {
	process
	namespace string
}

// undo deletes a container whose creation has failed. The shim may still be creating it, if only the caller has gone.
func (t *task) undo(ctx context.Context) error {
	const limit = 10 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	if _, err := t.Delete(ctx); err != nil && !errdefs.IsNotFound(err) && !errors.Is(err, errClosed) {
		return fmt.Errorf("undo creation of task: %w", err)
	}
	return nil
}

// Namespace implements runtime.Task.
func (t *task) Namespace() string { return t.namespace }

// PID implements runtime.Task.
func (t *task) PID(ctx context.Context) (uint32, error) {
	var pid uint32
	err := t.shim.call(ctx, func(shim taskapi.TTRPCTaskService, _ bool) error {
		r, err := shim.Connect(ctx, &taskapi.ConnectRequest{ID: t.container})
		pid = r.GetTaskPid()
		return err
	})
	return pid, err
}

// Pause implements runtime.Task.
func (t *task) Pause(ctx context.Context) error {
	return t.shim.call(ctx, func(shim taskapi.TTRPCTaskService, _ bool) error {
		_, err := shim.Pause(ctx, &taskapi.PauseRequest{ID: t.container})
		return err
	})
}

// Resume implements runtime.Task.
func (t *task) Resume(ctx context.Context) error {
	return t.shim.call(ctx, func(shim taskapi.TTRPCTaskService, _ bool) error {
		_, err := shim.Resume(ctx, &taskapi.ResumeRequest{ID: t.container})
		return err
	})
}

// Exec implements runtime.Task.
func (t *task) Exec(ctx context.Context, id string, o runtime.ExecOpts) (runtime.ExecProcess, error) {
	if err := identifiers.Validate(id); err != nil {
		return nil, err
	}
	err := t.shim.call(ctx, func(shim taskapi.TTRPCTaskService, repeated bool) error {
		_, err := shim.Exec(ctx, &taskapi.ExecProcessRequest{
			ID: t.container, ExecID: id, Stdin: o.IO.Stdin, Stdout: o.IO.Stdout, Stderr: o.IO.Stderr,
			Terminal: o.IO.Terminal, Spec: o.Spec,
		})
		if repeated && errdefs.IsAlreadyExists(errgrpc.ToNative(err)) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &process{t.shim, t.container, id}, nil
}

// Pids implements runtime.Task.
func (t *task) Pids(ctx context.Context) ([]runtime.ProcessInfo, error) {
	var list []runtime.ProcessInfo
	err := t.shim.call(ctx, func(shim taskapi.TTRPCTaskService, _ bool) error {
		r, err := shim.Pids(ctx, &taskapi.PidsRequest{ID: t.container})
		for _, p := range r.GetProcesses() {
			list = append(list, runtime.ProcessInfo{Pid: p.Pid, Info: p.Info})
		}
		return err
	})
	return list, err
}

// Checkpoint implements runtime.Task.
func (t *task) Checkpoint(ctx context.Context, path string, options *types.Any) error {
	return t.shim.call(ctx, func(shim taskapi.TTRPCTaskService, _ bool) error {
		_, err := shim.Checkpoint(ctx,
			&taskapi.CheckpointTaskRequest{ID: t.container, Path: path, Options: options})
		return err
	})
}

// Update implements runtime.Task.
func (t *task) Update(ctx context.Context, resources *types.Any, annotations map[string]string) error {
	return t.shim.call(ctx, func(shim taskapi.TTRPCTaskService, _ bool) error {
		_, err := shim.Update(ctx,
			&taskapi.UpdateTaskRequest{ID: t.container, Resources: resources, Annotations: annotations})
		return err
	})
}

// Process implements runtime.Task.
func (t *task) Process(ctx context.Context, id string) (runtime.ExecProcess, error) {
	p := &process{t.shim, t.container, id}
	_, err := p.State(ctx)
	return p, err
}

// Stats implements runtime.Task.
func (t *task) Stats(ctx context.Context) (*types.Any, error) {
	var stats *types.Any
	err := t.shim.call(ctx, func(shim taskapi.TTRPCTaskService, _ bool) error {
		r, err := shim.Stats(ctx, &taskapi.StatsRequest{ID: t.container})
		stats = r.GetStats()
		return err
	})
	return stats, err
}
