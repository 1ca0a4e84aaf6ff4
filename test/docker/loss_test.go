package docker

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/docker/dockertest"
)

// Without live-restore, containers end with dockerd, or with the start of the next one if it was killed. The shim
// reports their end, and makes the pods again.
func TestContainersEndWithDockerd(t *testing.T) {
	n := startWith(t, dockertest.Options{EndContainers: true})
	for name, signal := range map[string]unix.Signal{"restart": unix.SIGTERM, "kill": unix.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			pod := n.pod(name)
			sandbox := n.run(t, pod)
			config := workloadOf("c", "print", "before", "then", "sleep")
			id := n.launchContainer(t, sandbox, pod, config, "before")
			n.restartDockerd(t, signal, func() {})
			n.awaitExit(t, id)
			n.eventually(t, "the sandbox is not ready", func() bool {
				return n.sandboxOf(t, sandbox).State == runtimeapi.PodSandboxState_SANDBOX_NOTREADY
			})
			if got := lines(t, pod, config); !slices.Equal(got, []string{"before"}) {
				t.Errorf("the log: %q", got)
			}
			pod.Metadata.Attempt++
			next := n.run(t, pod)
			if got := n.sandboxOf(t, next); got.State != runtimeapi.PodSandboxState_SANDBOX_READY ||
				got.Network.GetIp() == "" {
				t.Errorf("the next sandbox: %s", got)
			}
		})
	}
}

// A shim that starts while the Engine's socket is missing waits for it, and calls fail with Unavailable.
func TestShimWaitsForTheSocket(t *testing.T) {
	n := start(t)
	sandbox := n.run(t, n.pod("socket"))
	n.stop()
	aside := n.daemon.Socket() + ".aside"
	if err := os.Rename(n.daemon.Socket(), aside); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Rename(aside, n.daemon.Socket()) }) // only after a failure
	n.connect(t)
	if _, err := n.Runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}); status.Code(
		err) != codes.Unavailable {
		t.Errorf("a list without the socket: %v", err)
	}
	if got := n.ready(t); got.Status || !strings.Contains(got.Message, n.daemon.Socket()) {
		t.Errorf("without the socket: %s", got)
	}
	if err := os.Rename(aside, n.daemon.Socket()); err != nil {
		t.Fatal(err)
	}
	n.eventually(t, "the shim is ready", func() bool { return n.ready(t).Status })
	if got := n.sandboxOf(t, sandbox); got.State != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Errorf("the sandbox: %s", got)
	}
}

// Containers and sandboxes that a user removes with Docker's own command are gone for the shim too. It releases the
// network of such a pod, whose sandbox no caller can stop any more.
func TestRemovedByDockersCommand(t *testing.T) {
	n := start(t)
	pod := n.pod("removed")
	sandbox := n.run(t, pod)
	id := n.create(t, sandbox, pod, workloadOf("c", "sleep"))
	n.startContainer(t, id)
	remove := func(id string) {
		_, err := n.daemon.Client().ContainerRemove(t.Context(), id, client.ContainerRemoveOptions{Force: true})
		if err != nil {
			t.Fatal(err)
		}
	}
	remove(id)
	n.eventually(t, "the container is gone", func() bool {
		_, err := n.Runtime.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
		return status.Code(err) == codes.NotFound
	})
	namespace := filepath.Join(n.dir, "run/docker/pods/netns", sandbox)
	if _, err := os.Stat(namespace); err != nil {
		t.Fatal(err)
	}
	remove(sandbox)
	n.eventually(t, "the sandbox is gone", func() bool { return len(n.sandboxes(t, "removed")) == 0 })
	if _, err := os.Stat(namespace); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the network namespace of the sandbox is left: %v", err)
	}
	n.run(t, pod) // of the same name
}

// While the disk of Docker is full, new pods fail and leave nothing behind, and those that run are not disturbed.
func TestDockersDiskIsFull(t *testing.T) {
	const size = 128 << 20
	n := startWith(t, dockertest.Options{RootSize: size})
	pod := n.pod("runs")
	sandbox := n.run(t, pod)
	config := workloadOf("c", "print", "before", "then", "stopped", "then", "print", "after")
	id := n.launchContainer(t, sandbox, pod, config, "before")

	free := fill(t, n.daemon.Root())
	_, err := n.Runtime.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: n.pod("late")})
	if err == nil || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("a pod on a full disk: %v", err)
	}
	if left := n.sandboxes(t, "late"); len(left) > 0 {
		t.Errorf("left of the pod: %s", left)
	}
	if got := n.ready(t); !got.Status {
		t.Errorf("the runtime: %s", got)
	}
	if got := n.container(t, id); got.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the container that runs: %s", got)
	}
	free()
	n.run(t, n.pod("late"))
	if _, err := n.Runtime.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id,
		Timeout: 30}); err != nil {
		t.Fatal(err)
	}
	if got := lines(t, pod, config); !slices.Equal(got, []string{"before", "after"}) {
		t.Errorf("the log: %q", got)
	}
}

// fill writes a file until the file system of a directory is full. free removes it.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "fill")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // it has no room for more
	for _, part := range []int{1 << 20, 4 << 10} {
		for err = nil; err == nil; {
			_, err = file.Write(make([]byte, part))
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
}
