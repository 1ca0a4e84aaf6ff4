package docker

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/agent/engine"
	"github.com/berth-run/berth/internal/agent/engine/endpoint"
	"github.com/berth-run/berth/internal/agent/engine/kind"
	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/docker/dockertest"
	"github.com/berth-run/berth/test/image"
)

const workload = "berth.test/workload:1"

// node is a dockerd with the shim of an agent.
type node struct {
	*cri.Client
	daemon  *dockertest.Daemon
	dir     string
	runtime engine.Runtime
	stop    func()
}

// start starts a dockerd and a shim. Both end with the test, which must have removed its pods.
func start(t *testing.T) *node {
	t.Helper()
	return startWith(t, dockertest.Options{})
}

// startWith does the same with options of dockerd.
func startWith(t *testing.T, o dockertest.Options) *node {
	t.Helper()
	archive, err := image.Build(t.Context(), t.TempDir(), workload)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{daemon: dockertest.StartWith(t, o, archive), dir: t.TempDir()}
	n.begin(t)
	t.Cleanup(func() {
		n.stop()
		if err := n.runtime.RemoveNetwork(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return n
}

// begin starts a shim, and waits until it lists pods. It may continue on the directories of an earlier one.
func (n *node) begin(t *testing.T) {
	t.Helper()
	n.connect(t)
	n.awaitLists(t)
}

// awaitLists waits until the shim lists pods, also at the end of a test.
func (n *node) awaitLists(t *testing.T) {
	t.Helper()
	n.eventually(t, "the shim lists pods", func() bool {
		_, err := n.Runtime.ListPodSandbox(context.Background(), &runtimeapi.ListPodSandboxRequest{})
		return err == nil
	})
}

// connect starts a shim.
func (n *node) connect(t *testing.T) {
	t.Helper()
	c := &config.Config{RootDir: filepath.Join(n.dir, "root"), RunDir: filepath.Join(n.dir, "run")}
	c.Runtime.Embedded.CNIConfDir = filepath.Join(n.dir, "no-cni")
	n.runtime = kind.All{}.Runtime(endpoint.Choice{Endpoint: "docker://unix://" + n.daemon.Socket()}, c, nil,
		slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	ctx, stop := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	client, err := n.runtime.Connect(t.Context(), func(run func(context.Context) error) {
		parts.Go(func() {
			if err := run(ctx); err != nil {
				t.Errorf("the shim ended: %v", err)
			}
		})
	}, cri.Options{})
	if err != nil {
		stop()
		t.Fatal(err)
	}
	n.Client = client
	n.stop = sync.OnceFunc(func() {
		stop()
		parts.Wait()
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
}

// eventually waits until condition is true.
func (n *node) eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	eventually.Nothing(t, func() string {
		if condition() {
			return ""
		}
		return what + "; dockerd's log: " + n.daemon.Log()
	})
}

// pod is the configuration of a sandbox.
func (n *node) pod(name string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "test", Uid: name + "-uid"},
		Hostname:     name,
		LogDirectory: filepath.Join(n.dir, "logs", name),
		Labels:       map[string]string{"app": name},
		Linux:        &runtimeapi.LinuxPodSandboxConfig{CgroupParent: n.daemon.Cgroup() + "/" + name},
	}
}

// run runs a sandbox, and removes it at the end of the test.
func (n *node) run(t *testing.T, config *runtimeapi.PodSandboxConfig) (id string) {
	t.Helper()
	if err := os.MkdirAll(config.LogDirectory, 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := n.Runtime.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		_, err := n.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: r.PodSandboxId})
		_, err2 := n.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: r.PodSandboxId})
		if err := errors.Join(err, err2); err != nil {
			t.Error(err)
		}
	})
	return r.PodSandboxId
}

// workloadOf is the configuration of a container with the workload's arguments.
func workloadOf(name string, args ...string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: workload}, Args: args,
		LogPath: name + ".log",
		Linux:   &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{}},
	}
}

func (n *node) create(t *testing.T, sandbox string, pod *runtimeapi.PodSandboxConfig,
	config *runtimeapi.ContainerConfig) (id string) {
	t.Helper()
	r, err := n.Runtime.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: sandbox,
		Config: config, SandboxConfig: pod})
	if err != nil {
		t.Fatal(err)
	}
	return r.ContainerId
}

func (n *node) startContainer(t *testing.T, id string) {
	t.Helper()
	if _, err := n.Runtime.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
}

// launchContainer makes and starts a container, and waits until its log has a line.
func (n *node) launchContainer(t *testing.T, sandbox string, pod *runtimeapi.PodSandboxConfig,
	config *runtimeapi.ContainerConfig, line string) (id string) {
	t.Helper()
	id = n.create(t, sandbox, pod, config)
	n.startContainer(t, id)
	n.awaitLine(t, pod, config, line)
	return id
}

// restartDockerd ends dockerd with a signal, calls meanwhile, and starts it again.
func (n *node) restartDockerd(t *testing.T, signal unix.Signal, meanwhile func()) {
	t.Helper()
	if err := n.daemon.Stop(signal); err != nil {
		t.Fatal(err)
	}
	meanwhile()
	if err := n.daemon.Start(context.Background()); err != nil { // also at the end of the test
		t.Fatal(err)
	}
}

func (n *node) container(t *testing.T, id string) *runtimeapi.ContainerStatus {
	t.Helper()
	r, err := n.Runtime.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		t.Fatal(err)
	}
	return r.Status
}

// awaitExit waits for the end of a container.
func (n *node) awaitExit(t *testing.T, id string) (status *runtimeapi.ContainerStatus) {
	t.Helper()
	n.eventually(t, "the container ends", func() bool {
		r, err := n.Runtime.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
		if err != nil {
			return false
		}
		status = r.Status
		return status.State == runtimeapi.ContainerState_CONTAINER_EXITED
	})
	return status
}

// lines returns the texts in the log of a container.
func lines(t *testing.T, pod *runtimeapi.PodSandboxConfig, config *runtimeapi.ContainerConfig) (texts []string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(pod.LogDirectory, config.LogPath))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		texts = append(texts, fields[len(fields)-1])
	}
	return texts
}

// awaitLine waits for a text in the log of a container.
func (n *node) awaitLine(t *testing.T, pod *runtimeapi.PodSandboxConfig, config *runtimeapi.ContainerConfig,
	text string) {
	t.Helper()
	n.eventually(t, "a line "+text, func() bool { return slices.Contains(lines(t, pod, config), text) })
}
