package checkpoint

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	metadata "github.com/checkpoint-restore/checkpointctl/lib"
	"github.com/moby/moby/client"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/process"
	"github.com/berth-run/berth/internal/docker"
	"github.com/berth-run/berth/internal/docker/dockershim/index"
	"github.com/berth-run/berth/internal/docker/dockerstats"
)

// Write writes a checkpoint of a running container to a file, which only root can read. The container runs on.
func Write(ctx context.Context, engine *docker.Client, c *index.Record, s *runtimeapi.ContainerStatus, to string) (
	err error) {
	dir, err := os.MkdirTemp(filepath.Dir(to), ".checkpoint-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	specification, err := specification(c)
	if err != nil {
		return err
	}
	// The Engine makes the directory of the archive that has CRIU's files.
	_, err = engine.CheckpointCreate(ctx, c.ID, client.CheckpointCreateOptions{CheckpointDir: dir,
		CheckpointID: metadata.CheckpointDirectory})
	if err != nil {
		return explained(err)
	}
	described, err := json.Marshal(config(c, s, time.Now()))
	if err != nil {
		return err
	}
	reported, err := json.Marshal(s)
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{metadata.SpecDumpFile: specification,
		metadata.ConfigDumpFile: described, metadata.StatusDumpFile: reported} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	if err := create(filepath.Join(dir, metadata.RootFsDiffTar), func(w io.Writer) error {
		return writeChanges(ctx, w, dockerstats.UpperDir("/proc", c.Pid))
	}); err != nil {
		return err
	}
	return create(to, func(w io.Writer) error {
		archive := tar.NewWriter(w)
		return errors.Join(archive.AddFS(os.DirFS(dir)), archive.Close())
	})
}

// specification returns the OCI specification of a running container. A shim process of containerd is the parent of the
// container's first process, and its working directory is the container's bundle.
func specification(c *index.Record) ([]byte, error) {
	parent, err := process.Parent(c.Pid)
	if err != nil {
		return nil, err
	}
	link := process.Path(parent, "cwd")
	bundle, err := os.Readlink(link)
	if err != nil {
		return nil, err
	}
	if filepath.Base(bundle) != c.ID {
		return nil, fmt.Errorf("find the specification of container %s: the directory of its shim process is %s", c.ID,
			bundle)
	}
	return os.ReadFile(filepath.Join(link, "config.json"))
}

// create makes a file, which only root can read. It removes the file if write fails.
func create(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
