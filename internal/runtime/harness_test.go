package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/base/roottest"
	"github.com/berth-run/berth/internal/base/unixsocket"
	"github.com/berth-run/berth/internal/runtime"
	"github.com/berth-run/berth/internal/runtime/handler"
	"github.com/berth-run/berth/internal/runtime/unpack"
	"github.com/berth-run/berth/test/image"
)

const (
	imageName   = "berth.test/workload:1"
	archiveName = "workload.tar"
	// serveEnv makes the test binary run a runtime that serves a socket. Its value is the directory of the runtime and
	// the socket.
	serveEnv = "BERTH_TEST_SERVE"
	// handlerEnv makes serve add the handler "second" for the program second in the runtime's directory.
	handlerEnv = "BERTH_TEST_HANDLER"
	timeout    = 20 * time.Second
	// cgroup is the parent cgroup of all pods in these tests.
	cgroup = "berthrt"
)

// TestMain runs the tests, or the runtime that TestRestart starts and kills.
func TestMain(m *testing.M) {
	if dir := os.Getenv(serveEnv); dir != "" {
		if err := serve(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// testConfig configures a runtime that shares nothing with other runtimes on the machine.
func testConfig(dir string) runtime.Config {
	return runtime.Config{
		Root:       filepath.Join(dir, "root"),
		State:      filepath.Join(dir, "state"),
		CNIConfDir: filepath.Join(dir, "net.d"),
		Bridge:     "berthrt0",
		// Small limits, so that a test can exceed them.
		Unpack:      unpack.Limits{Harmless: 8 << 20, MaxRatio: 100},
		RegistryDir: filepath.Join(dir, "certs.d"),
		LogMaxSize:  16 << 20,
		LogMaxFiles: 100,
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.202.0.0/24"),
			netip.MustParsePrefix("fd62:6572:7468:202::/64")},
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
}

func socket(dir string) string { return "unix://" + filepath.Join(dir, "cri.sock") }

func insecureCredentials() grpc.DialOption {
	return grpc.WithTransportCredentials(insecure.NewCredentials())
}

// serve runs a runtime on dir until it gets SIGTERM. It imports the image archives in dir, if there are any.
func serve(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	config := testConfig(dir)
	if os.Getenv(handlerEnv) != "" {
		config.Handlers = handler.Handlers{"second": {Binary: filepath.Join(dir, "second")}}
	}
	r := runtime.New(config)
	archives := []string{archiveName}
	if os.Getenv(stockEnv) != "" {
		runtime.UseStock(r, pauseName, stockShim(dir))
		archives = append(archives, "pause.tar")
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	for _, file := range archives {
		content, err := os.ReadFile(filepath.Join(dir, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if _, err := r.Import(context.Background(), bytes.NewReader(content)); err != nil {
			return errors.Join(err, <-ended)
		}
	}
	listener, err := runtime.Listen(socket(dir))
	if err != nil {
		return err
	}
	return errors.Join(r.Serve(ctx, listener), <-ended)
}

// scratch makes a directory with a path short enough for sockets. The test fails if a process or a mount still uses the
// directory at the test's end.
func scratch(t testing.TB) string {
	t.Helper()
	t.Cleanup(func() { // the directory is gone by then, and so its sockets may go
		if err := unixsocket.Sweep(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return roottest.Dir(t, "running containers", func(dir string) { sweep(t, dir) })
}

// sweep fails the test if it has left anything in dir, and removes it.
func sweep(t testing.TB, dir string) {
	t.Helper()
	endShims(t, dir)
	for _, left := range destroy(dir) {
		t.Errorf("the test left: %s", left)
	}
}

// endShims ends the shims of dir that have no container, which would stay for ten seconds more, and waits until no
// process of dir is left.
func endShims(t testing.TB, dir string) {
	t.Helper()
	for pid := range running(dir) {
		conn, err := net.Dial("unix", socketOf(pid))
		if err != nil {
			continue // it is no shim, or has just ended
		}
		client := ttrpc.NewClient(conn)
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		// The answer may be lost with the shim.
		_, _ = taskapi.NewTTRPCTaskClient(client).Shutdown(ctx, &taskapi.ShutdownRequest{})
		cancel()
		_ = client.Close()
	}
	eventually.True(t, "shims are gone", func() bool { return len(running(dir)) == 0 })
}

// destroy ends everything that runtimes run in dir, like a shutdown of the machine, and returns a list of it. The list
// omits pod cgroups, since the CRI client has to remove those.
func destroy(dir string) []string {
	var found []string
	end := func(pid int, where string) {
		found = append(found, fmt.Sprintf("process %d of %s", pid, where))
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	for pid, program := range running(dir) {
		end(pid, program)
	}
	for _, path := range podCgroups() {
		for pid := range strings.FieldsSeq(readFile(path + "/cgroup.procs")) {
			if pid, err := strconv.Atoi(pid); err == nil {
				end(pid, path)
			}
		}
	}
	for line := range strings.Lines(readFile("/proc/mounts")) {
		if at := strings.Fields(line)[1]; strings.HasPrefix(at, dir+"/") {
			found = append(found, "mount "+at)
			_ = unix.Unmount(at, unix.MNT_DETACH)
		}
	}
	for _, path := range slices.Backward(podCgroups()) {
		_ = unix.Rmdir(path)
	}
	return found
}

// podCgroups lists the cgroups of these tests' pods, parents first.
func podCgroups() []string {
	var paths []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.Contains(path, "/"+cgroup) {
			paths = append(paths, path)
		}
		return nil
	})
	return paths
}

func readFile(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(text)
}

// running returns the processes whose programs are below dir. A holder runs from a copy elsewhere, and names its
// program in its arguments.
func running(dir string) map[int]string {
	processes := map[int]string{}
	dirs, _ := os.ReadDir("/proc")
	for _, entry := range dirs {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		of := filepath.Join("/proc", entry.Name())
		program, _ := os.Readlink(filepath.Join(of, "exe"))
		named, _, _ := strings.Cut(readFile(filepath.Join(of, "cmdline")), "\x00")
		for _, path := range []string{program, named} {
			if strings.HasPrefix(path, dir+"/") {
				processes[pid] = path
				break
			}
		}
	}
	return processes
}

// archive returns the archive of the test image, which is built once.
func archive(t testing.TB) []byte {
	t.Helper()
	content, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return content
}

var built = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "berth-test-image-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path, err := image.Build(context.Background(), dir, imageName)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// putArchive writes the archive to where serve finds it.
func putArchive(t testing.TB, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, archiveName), archive(t), 0o600); err != nil {
		t.Fatal(err)
	}
}

// client is a CRI client with helpers for the calls that the tests repeat.
type client struct {
	cri.RuntimeServiceClient
	images cri.ImageServiceClient
	logs   string // directory of container logs
}

// newClient makes a client. It removes all sandboxes at the test's end.
func newClient(t testing.TB, conn grpc.ClientConnInterface, dir string) *client {
	t.Helper()
	c := &client{cri.NewRuntimeServiceClient(conn), cri.NewImageServiceClient(conn), filepath.Join(dir, "logs")}
	t.Cleanup(func() { c.removeAll(t) })
	return c
}

func meta(name string) *cri.PodSandboxMetadata {
	return &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name}
}

// sandbox completes the config of a pod sandbox and runs it.
func (c *client) sandbox(t testing.TB, config *cri.PodSandboxConfig) (id string, pod *cri.PodSandboxConfig) {
	t.Helper()
	config.LogDirectory = c.logs
	if config.Linux == nil {
		config.Linux = &cri.LinuxPodSandboxConfig{}
	}
	if config.Linux.SecurityContext.GetNamespaceOptions().GetNetwork() != cri.NamespaceMode_NODE {
		config.Hostname = config.Metadata.Name
	}
	config.Linux.CgroupParent = "/" + cgroup + "/" + config.Metadata.Uid
	response, err := c.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	return response.PodSandboxId, config
}

// container creates and starts a container.
func (c *client) container(t *testing.T, sandbox string, pod *cri.PodSandboxConfig, name string,
	args ...string) string {
	t.Helper()
	return c.run(t, sandbox, pod, &cri.ContainerConfig{Metadata: &cri.ContainerMetadata{Name: name}, Args: args})
}

// run creates and starts a container of the test image with a log. Unless config says otherwise, it is in the pod's
// namespaces.
func (c *client) run(t *testing.T, sandbox string, pod *cri.PodSandboxConfig, config *cri.ContainerConfig) string {
	t.Helper()
	config.Image = &cri.ImageSpec{Image: imageName}
	config.LogPath = config.Metadata.Name + ".log"
	if config.Linux == nil {
		config.Linux = &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{
			NamespaceOptions: pod.Linux.SecurityContext.GetNamespaceOptions(),
		}}
	}
	created, err := c.CreateContainer(t.Context(),
		&cri.CreateContainerRequest{PodSandboxId: sandbox, SandboxConfig: pod, Config: config})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.StartContainer(t.Context(),
		&cri.StartContainerRequest{ContainerId: created.ContainerId}); err != nil {
		t.Fatal(err)
	}
	return created.ContainerId
}

// status returns a container's status.
func (c *client) status(t *testing.T, id string) *cri.ContainerStatus {
	t.Helper()
	response, err := c.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		t.Fatal(err)
	}
	return response.Status
}

// exitCode waits until a container has exited and returns its exit code.
func (c *client) exitCode(t *testing.T, id string) int32 {
	t.Helper()
	eventually.True(t, "container exits", func() bool {
		return c.status(t, id).State == cri.ContainerState_CONTAINER_EXITED
	})
	return c.status(t, id).ExitCode
}

// removeAll stops and removes all sandboxes.
func (c *client) removeAll(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	list, err := c.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		t.Error(err)
		return
	}
	for _, sandbox := range list.Items {
		_, stopped := c.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: sandbox.Id})
		_, removed := c.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: sandbox.Id})
		if err := errors.Join(stopped, removed); err != nil {
			t.Error(err)
		}
	}
}
