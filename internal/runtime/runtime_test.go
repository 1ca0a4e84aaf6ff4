package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/runtime"
	"github.com/berth-run/berth/test/image"
)

const (
	imageName = "berth.test/workload:1"
	// serveEnv makes the test binary a runtime of its own that serves a socket: see child.
	serveEnv = "BERTH_TEST_SERVE"
	patience = 20 * time.Second
)

// The test binary is also the shim, and the process that the restart test kills.
func TestMain(m *testing.M) {
	if runtime.ShimMain(os.Args) {
		return
	}
	if dir := os.Getenv(serveEnv); dir != "" {
		if err := serve(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// testConfig keeps the runtimes of this test apart from others on the machine.
func testConfig(dir string) runtime.Config {
	return runtime.Config{
		Root:       filepath.Join(dir, "root"),
		State:      filepath.Join(dir, "state"),
		CNIConfDir: filepath.Join(dir, "net.d"),
		Bridge:     "berthrt0",
		PodCIDRs:   []netip.Prefix{netip.MustParsePrefix("10.202.0.0/24"), netip.MustParsePrefix("fd62:6572:7468:202::/64")},
		Log:        slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})),
	}
}

func socket(dir string) string { return "unix://" + filepath.Join(dir, "cri.sock") }

// serve is the child: a runtime on dir until it is killed.
func serve(dir string) error {
	r := runtime.New(testConfig(dir))
	listener, err := runtime.Listen(socket(dir))
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(context.Background()) }()
	return errors.Join(r.Serve(context.Background(), listener), <-ended)
}

// scratch is a directory with a path short enough for sockets. What runtimes leave there is removed.
func scratch(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("containers need root")
	}
	dir, err := os.MkdirTemp("/tmp", "rt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		sweep(t, dir)
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// sweep ends the processes that run from dir and removes the mounts below it: after a test that
// cleaned up there are none.
func sweep(t *testing.T, dir string) {
	t.Helper()
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range links {
		if target, _ := os.Readlink(link); strings.HasPrefix(target, dir+"/") {
			var pid int
			if _, err := fmt.Sscanf(link, "/proc/%d/exe", &pid); err == nil {
				t.Errorf("process %d was left running %s", pid, target)
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
	}
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if at := strings.Fields(line)[1]; strings.HasPrefix(at, dir+"/") {
			t.Errorf("mount %s was left", at)
			_ = unix.Unmount(at, unix.MNT_DETACH)
		}
	}
}

// start runs a runtime in this process until the test ends.
func start(t *testing.T, config runtime.Config) *runtime.Runtime {
	t.Helper()
	r := runtime.New(config)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return r
}

// archive builds the image once per test.
func archive(t *testing.T) string {
	t.Helper()
	path, err := image.Build(t.Context(), t.TempDir(), imageName)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// client is the CRI with the few calls that the tests repeat.
type client struct {
	cri.RuntimeServiceClient
	images cri.ImageServiceClient
	logs   string // directory of container logs
}

func newClient(t *testing.T, conn grpc.ClientConnInterface, dir string) *client {
	t.Helper()
	c := &client{cri.NewRuntimeServiceClient(conn), cri.NewImageServiceClient(conn), filepath.Join(dir, "logs")}
	t.Cleanup(func() { c.removeAll(t) })
	return c
}

// sandbox runs a pod sandbox.
func (c *client) sandbox(t *testing.T, name string, ports ...*cri.PortMapping) (id string, config *cri.PodSandboxConfig) {
	t.Helper()
	config = &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name},
		Hostname:     name,
		LogDirectory: c.logs,
		PortMappings: ports,
		Linux:        &cri.LinuxPodSandboxConfig{CgroupParent: "/berthrt/" + name},
	}
	response, err := c.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	return response.PodSandboxId, config
}

// container creates and starts a container.
func (c *client) container(t *testing.T, sandbox string, pod *cri.PodSandboxConfig, name string, args ...string) string {
	t.Helper()
	created, err := c.CreateContainer(t.Context(), &cri.CreateContainerRequest{
		PodSandboxId:  sandbox,
		SandboxConfig: pod,
		Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: name},
			Image:    &cri.ImageSpec{Image: imageName},
			Args:     args,
			LogPath:  name + ".log",
			Linux:    &cri.LinuxContainerConfig{},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: created.ContainerId}); err != nil {
		t.Fatal(err)
	}
	return created.ContainerId
}

// eventually polls until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// status is a container's status.
func (c *client) status(t *testing.T, id string) *cri.ContainerStatus {
	t.Helper()
	response, err := c.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		t.Fatal(err)
	}
	return response.Status
}

// exited waits until a container has, and returns its exit code.
func (c *client) exited(t *testing.T, id string) int32 {
	t.Helper()
	eventually(t, "container exits", func() bool {
		return c.status(t, id).State == cri.ContainerState_CONTAINER_EXITED
	})
	return c.status(t, id).ExitCode
}

// removeAll leaves no sandbox behind.
func (c *client) removeAll(t *testing.T) {
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

func TestPod(t *testing.T) {
	dir := scratch(t)
	r := start(t, testConfig(dir))
	t0 := time.Now()
	conn, err := r.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Log("ready after", time.Since(t0))
	c := newClient(t, conn, dir)
	file, err := os.Open(archive(t))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	images, err := r.Import(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(images)
	for i := range 3 {
		t0 = time.Now()
		name := fmt.Sprint("p", i)
		id, pod := c.sandbox(t, name)
		t1 := time.Now()
		ctr := c.container(t, id, pod, "main"+name, "print", "hello", "then", "exit", "7")
		t.Log("sandbox", t1.Sub(t0), "container", time.Since(t1))
		if code := c.exited(t, ctr); code != 7 {
			t.Errorf("exit code %d", code)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "logs", "mainp0.log"))
	t.Log(string(text), err)
	out, _ := exec.Command("sh", "-c", "cat "+dir+"/root/cni/*; ls -lR "+dir+"/root/bin; nft list ruleset | head -50").CombinedOutput()
	t.Log(string(out))
	resp, err := c.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{})
	t.Log(resp, err)
	st, err := c.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: resp.Items[0].Id})
	t.Log(st, err)
}
