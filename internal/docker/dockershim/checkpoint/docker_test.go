package checkpoint

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metadata "github.com/checkpoint-restore/checkpointctl/lib"
	"github.com/moby/moby/client"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/docker"
	"github.com/berth-run/berth/internal/docker/dockershim/index"
	"github.com/berth-run/berth/internal/docker/dockertest"
	"github.com/berth-run/berth/test/image"
)

const imageName = "berth.test/workload:1"

// rig is a dockerd with a container that has written a file and prints numbers.
type rig struct {
	daemon *dockertest.Daemon
	engine *docker.Client
	record *index.Record
	// dir is where the archive is, and nothing else.
	dir, archive string
}

func newRig(t *testing.T, args ...string) *rig {
	t.Helper()
	archive, err := image.Build(t.Context(), t.TempDir(), imageName)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{daemon: dockertest.StartWith(t, dockertest.Options{Args: args}, archive), dir: t.TempDir()}
	r.archive = filepath.Join(r.dir, "checkpoint.tar")
	if r.engine, err = docker.New(docker.Scheme + r.daemon.Endpoint()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.engine.Close() })
	id := r.daemon.Run(t, imageName, []string{"write", "/state", "kept", "then", "count"}, nil)
	inspected, err := r.engine.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := inspected.Container
	r.record = &index.Record{ID: id, Name: c.Name, Pid: c.State.Pid, Host: c.HostConfig, ImageID: c.Image}
	eventually.True(t, "the container has written its file", func() bool {
		_, err := r.engine.ContainerStatPath(t.Context(), id, client.ContainerStatPathOptions{Path: "/state"})
		return err == nil
	})
	return r
}

func (r *rig) write(t *testing.T) error {
	t.Helper()
	return Write(t.Context(), r.engine, r.record, &runtimeapi.ContainerStatus{Id: r.record.ID,
		Image: &runtimeapi.ImageSpec{Image: imageName}}, r.archive)
}

// left fails if a checkpoint that failed has left a file.
func (r *rig) left(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir(r.dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

func TestEngineThatIsNotExperimentalMakesNoCheckpoints(t *testing.T) {
	r := newRig(t)
	err := r.write(t)
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), `"experimental": true`) {
		t.Errorf("%v", err)
	}
	r.left(t)
}

func TestCheckpointNeedsCRIU(t *testing.T) {
	if path, err := exec.LookPath("criu"); err == nil {
		t.Skipf("%s is installed", path)
	}
	r := newRig(t, "--experimental")
	err := r.write(t)
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "install the package criu") {
		t.Errorf("%v", err)
	}
	r.left(t)
}

// The archive has all parts, and the container runs on.
func TestArchiveHasAllParts(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), "criu", "check").CombinedOutput(); err != nil {
		t.Skipf("CRIU does not work on this machine: %v %s", err, out)
	}
	r := newRig(t, "--experimental")
	if err := r.write(t); err != nil {
		t.Fatal(err)
	}
	if pid := r.daemon.PidOf(t, r.record.ID); pid != r.record.Pid {
		t.Errorf("process %d after the checkpoint, %d before", pid, r.record.Pid)
	}
	info, err := os.Stat(r.archive)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the archive: %v, %v", info.Mode(), err)
	}
	if entries, err := os.ReadDir(r.dir); err != nil || len(entries) != 1 {
		t.Errorf("beside the archive: %v, %v", entries, err)
	}
	parts := read(t, r.archive)
	var described metadata.ContainerConfig
	var specification specs.Spec
	err = errors.Join(json.Unmarshal([]byte(parts[metadata.ConfigDumpFile]), &described),
		json.Unmarshal([]byte(parts[metadata.SpecDumpFile]), &specification))
	if err != nil || described.RootfsImageName != imageName || specification.Process.Args[1] != "write" {
		t.Errorf("%v, %+v, %+v", err, described, specification.Process)
	}
	if !strings.Contains(parts[metadata.StatusDumpFile], r.record.ID) {
		t.Errorf("status %s", parts[metadata.StatusDumpFile])
	}
	changed := filepath.Join(t.TempDir(), "changed.tar")
	if err := os.WriteFile(changed, []byte(parts[metadata.RootFsDiffTar]), 0o600); err != nil {
		t.Fatal(err)
	}
	if files := read(t, changed); files["state"] != "kept\n" {
		t.Errorf("changed files: %q", files)
	}
	if parts[metadata.CheckpointDirectory+"/inventory.img"] == "" {
		t.Error("the archive has no inventory of CRIU")
	}
}

// read returns the files of an archive with their contents.
func read(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // it is only read
	files := map[string]string{}
	for r := tar.NewReader(f); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.FileInfo().Mode().Type() != fs.FileMode(0) {
			continue
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(content)
	}
}
