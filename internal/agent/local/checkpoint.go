package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/api/stream"
	"github.com/berth-run/berth/internal/cri"
)

// Checkpoints implements server.Checkpoints through the CRI.
type Checkpoints struct {
	CRI *cri.Client
	// RootDir is the agent's root directory. Its directory checkpoints has the archives that are being written.
	RootDir string
}

// Checkpoint implements server.Checkpoints.
func (c Checkpoints) Checkpoint(ctx context.Context, p *corev1.Pod, container string, w io.Writer) (err error) {
	all := filepath.Join(c.RootDir, "checkpoints")
	if err := os.MkdirAll(all, 0o700); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(all, ".writing-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "checkpoint.tar")
	if _, err := c.CRI.Runtime.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{
		ContainerId: stream.ContainerID(p, container), Location: path,
	}); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read the archive of the runtime: %w", err)
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}
