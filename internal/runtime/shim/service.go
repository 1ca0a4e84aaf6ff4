package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types/runc/options"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/go-runc"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-run/berth/internal/runtime/shim/record"
)

// service is the task API for all containers of a node.
type service struct {
	registry *registry
	keeper   *keeper
}

// recordOf makes the record of a new container.
func (s *service) recordOf(ctx context.Context, r *taskapi.CreateTaskRequest) (record.Container, error) {
	namespace, err := namespaces.NamespaceRequired(ctx)
	if err != nil {
		return record.Container{}, err
	}
	var o options.Options
	if r.Options.GetValue() != nil {
		if err := typeurl.UnmarshalTo(r.Options, &o); err != nil {
			return record.Container{}, fmt.Errorf("read options of container %s: %w", r.ID, err)
		}
	}
	const defaultRoot = "/run/containerd/runc"
	if o.Root == "" {
		o.Root = defaultRoot
	}
	if o.BinaryName == "" {
		o.BinaryName = runc.DefaultCommand
	}
	if o.CriuWorkPath == "" {
		o.CriuWorkPath = filepath.Join(r.Bundle, "work")
	}
	return record.Container{
		Version: record.Version, Boot: s.keeper.boot, Namespace: namespace, ID: r.ID, Bundle: r.Bundle,
		Runtime: record.Runtime{
			Binary: o.BinaryName, Root: o.Root, SystemdCgroup: o.SystemdCgroup, NoPivotRoot: o.NoPivotRoot,
			NoNewKeyring: o.NoNewKeyring, IOUID: o.IoUid, IOGID: o.IoGid, Checkpoint: r.Checkpoint,
			CriuWork: o.CriuWorkPath,
		},
		Init: record.Process{
			Phase: record.Creating, Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr, Terminal: r.Terminal,
		},
	}, nil
}

// Create creates a container. Its first process waits for Start.
func (s *service) Create(ctx context.Context, r *taskapi.CreateTaskRequest) (*taskapi.CreateTaskResponse, error) {
	recorded, err := s.recordOf(ctx, r)
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	c := newContainer(recorded)
	if spec := c.spec(); spec != nil {
		c.record.Log = spec.Log
	}
	if err := s.registry.reserve(r.ID); errors.Is(err, errEnding) {
		select {} // the agent repeats the call with the next shim when this process has ended
	} else if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	if err := s.keeper.create(ctx, c, r.Rootfs); err != nil {
		c.discard()
		s.registry.set(r.ID, nil)
		return nil, errgrpc.ToGRPC(err)
	}
	s.registry.set(r.ID, c)
	return &taskapi.CreateTaskResponse{Pid: uint32(c.stateOf(c.init).Pid)}, nil
}

// Start starts the first process of a container, or one that Exec has announced.
func (s *service) Start(ctx context.Context, r *taskapi.StartRequest) (*taskapi.StartResponse, error) {
	c, p, err := s.registry.findProcess(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	switch state := c.stateOf(p); {
	case state.HasStarted():
		return &taskapi.StartResponse{Pid: uint32(state.Pid)}, nil // the call is repeated after the end of a shim
	case state.Phase == record.Exited:
		return nil, errgrpc.ToGRPCf(errdefs.ErrFailedPrecondition,
			"start process %d: it has ended with code %d", state.Pid, state.Status)
	case p.id != "":
		err = s.keeper.startExec(ctx, c, p)
	case c.record.Runtime.Checkpoint != "" && state.Pid == 0:
		err = s.keeper.restoreCheckpoint(ctx, c)
	default:
		err = s.keeper.start(ctx, c)
	}
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.state.Phase == record.Created {
		p.state.Phase = record.Running
	}
	return &taskapi.StartResponse{Pid: uint32(p.state.Pid)}, errgrpc.ToGRPC(c.save())
}

// Exec announces a command in a container. Start runs it.
func (s *service) Exec(_ context.Context, r *taskapi.ExecProcessRequest) (*emptypb.Empty, error) {
	c, err := s.registry.find(r.ID)
	if err != nil {
		return nil, err
	}
	var spec specs.Process
	if err := json.Unmarshal(r.Spec.GetValue(), &spec); err != nil {
		return nil, errgrpc.ToGRPC(fmt.Errorf("read process of exec %s: %w", r.ExecID, err))
	}
	spec.Terminal = r.Terminal
	p := newProcess(r.ExecID, record.Process{
		Phase: record.Created, Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr, Terminal: r.Terminal,
	})
	p.spec = &spec
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.execs[r.ExecID]; ok {
		return nil, errgrpc.ToGRPCf(errdefs.ErrAlreadyExists, "exec %s", r.ExecID)
	}
	c.execs[r.ExecID] = p
	return &emptypb.Empty{}, nil
}

// Delete removes a container or an executed process that has ended or has not started.
func (s *service) Delete(ctx context.Context, r *taskapi.DeleteRequest) (*taskapi.DeleteResponse, error) {
	c, p, err := s.registry.findProcess(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	state := c.stateOf(p)
	if state.Phase == record.Running {
		return nil, errgrpc.ToGRPCf(errdefs.ErrFailedPrecondition, "delete process %d: it runs", state.Pid)
	}
	if p.id != "" {
		c.mu.Lock()
		delete(c.execs, p.id)
		err = c.save()
		c.mu.Unlock()
	} else if err = s.keeper.delete(ctx, c); err == nil {
		s.registry.set(r.ID, nil)
	}
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	state = c.stateOf(p)
	_ = p.stdio.Close()
	return deletionOf(state), nil
}

// Kill signals a process, or all processes of a container.
func (s *service) Kill(ctx context.Context, r *taskapi.KillRequest) (*emptypb.Empty, error) {
	c, p, err := s.registry.findProcess(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	thaw := c.paused && unix.Signal(r.Signal) == unix.SIGKILL
	c.mu.Unlock()
	if thaw {
		if _, err := s.Resume(ctx, &taskapi.ResumeRequest{ID: r.ID}); err != nil {
			return nil, err
		}
	}
	err = c.signal(p, unix.Signal(r.Signal))
	if group := c.group(); r.All && r.ExecID == "" && unix.Signal(r.Signal) == unix.SIGKILL && group != nil {
		if failed := group.Kill(); failed != nil && !errors.Is(failed, os.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	return &emptypb.Empty{}, nil
}

// State returns the state of a process.
func (s *service) State(_ context.Context, r *taskapi.StateRequest) (*taskapi.StateResponse, error) {
	c, p, err := s.registry.findProcess(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	id := p.id
	if id == "" {
		id = r.ID
	}
	response := &taskapi.StateResponse{
		ID: id, Bundle: c.record.Bundle, Pid: uint32(p.state.Pid), Stdin: p.state.Stdin, Stdout: p.state.Stdout,
		Stderr: p.state.Stderr, Terminal: p.state.Terminal, ExitStatus: p.state.Status,
		ExitedAt: timestamppb.New(p.state.ExitedAt), Status: tasktypes.Status_STOPPED,
	}
	switch {
	case p.state.NeverRan:
		response.Pid = 0 // the next agent takes the container for one without a task
	case p.state.Phase == record.Exited:
	case c.paused:
		response.Status = tasktypes.Status_PAUSED
	case p.state.Phase == record.Running:
		response.Status = tasktypes.Status_RUNNING
	default:
		response.Status = tasktypes.Status_CREATED
	}
	return response, nil
}

// Wait waits for the exit of a process.
func (s *service) Wait(ctx context.Context, r *taskapi.WaitRequest) (*taskapi.WaitResponse, error) {
	c, p, err := s.registry.findProcess(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	if err := p.wait(ctx); err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	state := c.stateOf(p)
	return &taskapi.WaitResponse{ExitStatus: state.Status, ExitedAt: timestamppb.New(state.ExitedAt)}, nil
}
