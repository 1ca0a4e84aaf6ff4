package main

import (
	"os"
	"path/filepath"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-run/berth/internal/runtime/shim/record"
)

// deletionOf is the answer to the deletion of a process: its exit.
func deletionOf(state record.Process) *taskapi.DeleteResponse {
	return &taskapi.DeleteResponse{
		Pid: uint32(state.Pid), ExitStatus: state.Status, ExitedAt: timestamppb.New(state.ExitedAt),
	}
}

// keepExit writes the exit of a container that is being deleted into a file below the directory exits. The agent may be
// killed before it has recorded the answer to the deletion.
func (c *container) keepExit(exits string) error {
	content, err := proto.Marshal(deletionOf(c.stateOf(c.init)))
	if err != nil {
		return err
	}
	dir := filepath.Join(exits, c.record.Namespace)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	pending := filepath.Join(dir, "."+c.record.ID)
	if err := os.WriteFile(pending, content, 0o600); err != nil {
		return err
	}
	return os.Rename(pending, filepath.Join(dir, c.record.ID))
}
