package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/runc/options"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/go-runc"
	"github.com/containerd/log"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/berth-run/berth/internal/runtime/shim/criu"
	"github.com/berth-run/berth/internal/runtime/shim/oci"
	"github.com/berth-run/berth/internal/runtime/shim/terminal"
)

type mountProto = types.Mount

// warn logs an error that a container survives.
func warn(container string, err error) {
	log.L.WithError(err).WithField("container", container).Warn("continuing with the container in spite of an error")
}

// Pause stops all processes of a container.
func (s *service) Pause(ctx context.Context, r *taskapi.PauseRequest) (*emptypb.Empty, error) {
	return s.freeze(ctx, r.ID, true)
}

// Resume continues a container after Pause.
func (s *service) Resume(ctx context.Context, r *taskapi.ResumeRequest) (*emptypb.Empty, error) {
	return s.freeze(ctx, r.ID, false)
}

func (s *service) freeze(ctx context.Context, id string, paused bool) (*emptypb.Empty, error) {
	c, err := s.registry.find(id)
	if err != nil {
		return nil, err
	}
	doing, run := "resume", c.runc.Resume
	if paused {
		doing, run = "pause", c.runc.Pause
	}
	if err := run(ctx, id); err != nil {
		return nil, errgrpc.ToGRPC(oci.Error(c.runc.Log, doing, err))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = paused
	return &emptypb.Empty{}, nil
}

// Pids lists the processes of a container.
func (s *service) Pids(_ context.Context, r *taskapi.PidsRequest) (*taskapi.PidsResponse, error) {
	c, err := s.registry.find(r.ID)
	if err != nil {
		return nil, err
	}
	execs := map[int]string{}
	for _, p := range c.running() {
		execs[c.stateOf(p).Pid] = p.id
	}
	response := &taskapi.PidsResponse{}
	group := c.group()
	if group == nil {
		return response, nil
	}
	pids, err := group.Processes()
	if err != nil && !os.IsNotExist(err) {
		return nil, errgrpc.ToGRPC(fmt.Errorf("list processes of container %s: %w", r.ID, err))
	}
	for _, pid := range pids {
		info := &tasktypes.ProcessInfo{Pid: uint32(pid)}
		if exec, ok := execs[pid]; ok {
			if info.Info, err = typeurl.MarshalAnyToProto(&options.ProcessDetails{ExecID: exec}); err != nil {
				return nil, err
			}
		}
		response.Processes = append(response.Processes, info)
	}
	return response, nil
}

// ResizePty sets the size of a process's terminal.
func (s *service) ResizePty(_ context.Context, r *taskapi.ResizePtyRequest) (*emptypb.Empty, error) {
	c, p, err := s.registry.findProcess(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	if state := c.stateOf(p); state.Console != 0 {
		err = terminal.Resize(state.Console, state.ConsoleStarted, r.Width, r.Height)
	}
	return &emptypb.Empty{}, errgrpc.ToGRPC(err)
}

// CloseIO ends the standard input of a process.
func (s *service) CloseIO(_ context.Context, r *taskapi.CloseIORequest) (*emptypb.Empty, error) {
	c, p, err := s.registry.findProcess(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	p.stdio.CloseInput()
	return &emptypb.Empty{}, errgrpc.ToGRPC(c.setInputClosed(p))
}

// Checkpoint writes the state of a container's processes to disk.
func (s *service) Checkpoint(ctx context.Context, r *taskapi.CheckpointTaskRequest) (*emptypb.Empty, error) {
	c, err := s.registry.find(r.ID)
	if err != nil {
		return nil, err
	}
	var o options.CheckpointOptions
	if r.Options.GetValue() != nil {
		if err := typeurl.UnmarshalTo(r.Options, &o); err != nil {
			return nil, errgrpc.ToGRPC(err)
		}
	}
	var actions []runc.CheckpointAction
	if !o.Exit {
		actions = append(actions, runc.LeaveRunning)
	}
	work := o.WorkPath
	if work == "" {
		if work, err = os.MkdirTemp(c.record.Runtime.CriuWork, "criu"); err != nil {
			return nil, errgrpc.ToGRPC(err)
		}
		defer func() { _ = os.RemoveAll(work) }()
	}
	s.keeper.criu.Lock()
	defer s.keeper.criu.Unlock()
	if err := oci.ForgetErrors(c.runc.Log); err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	if err := criu.DeclareStdio(c.record.Bundle, c.stateOf(c.init).Pid, r.Path); err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	err = c.runc.Checkpoint(ctx, r.ID, &runc.CheckpointOpts{
		WorkDir: work, ImagePath: r.Path, AllowOpenTCP: o.OpenTcp, AllowExternalUnixSockets: o.ExternalUnixSockets,
		AllowTerminal: o.Terminal, FileLocks: o.FileLocks, EmptyNamespaces: o.EmptyNamespaces, ParentPath: o.ParentPath,
	}, actions...)
	err = criu.Error(filepath.Join(work, "dump.log"), oci.Error(c.runc.Log, "checkpoint", err))
	return &emptypb.Empty{}, errgrpc.ToGRPC(err)
}

// Update sets the resource limits of a container.
func (s *service) Update(ctx context.Context, r *taskapi.UpdateTaskRequest) (*emptypb.Empty, error) {
	c, err := s.registry.find(r.ID)
	if err != nil {
		return nil, err
	}
	var resources specs.LinuxResources
	if err := json.Unmarshal(r.Resources.GetValue(), &resources); err != nil {
		return nil, errgrpc.ToGRPC(fmt.Errorf("read resources: %w", err))
	}
	err = c.runc.Update(ctx, r.ID, &resources)
	return &emptypb.Empty{}, errgrpc.ToGRPC(oci.Error(c.runc.Log, "update", err))
}

// Stats reads the counters of a container.
func (s *service) Stats(_ context.Context, r *taskapi.StatsRequest) (*taskapi.StatsResponse, error) {
	c, err := s.registry.find(r.ID)
	if err != nil {
		return nil, err
	}
	group := c.group()
	if group == nil {
		return nil, errgrpc.ToGRPCf(errdefs.ErrNotFound, "cgroup of container %s", r.ID)
	}
	stat, err := group.Stat()
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	content, err := typeurl.MarshalAnyToProto(stat)
	return &taskapi.StatsResponse{Stats: content}, errgrpc.ToGRPC(err)
}

// Connect returns the processes of the shim and of a container.
func (s *service) Connect(_ context.Context, r *taskapi.ConnectRequest) (*taskapi.ConnectResponse, error) {
	response := &taskapi.ConnectResponse{ShimPid: uint32(os.Getpid())}
	if c, err := s.registry.find(r.ID); err == nil {
		response.TaskPid = uint32(c.stateOf(c.init).Pid)
	}
	return response, nil
}

// Shutdown ends the shim if it has no container.
func (s *service) Shutdown(context.Context, *taskapi.ShutdownRequest) (*emptypb.Empty, error) {
	s.registry.endIfEmpty()
	return &emptypb.Empty{}, nil
}
