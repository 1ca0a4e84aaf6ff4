package runtime_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/base/unixsocket"
	calls "github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/runtime"
)

// All tests of a running runtime share one, since a process can have only one.
func TestRuntime(t *testing.T) {
	dir := scratch(t)
	config := testConfig(dir)
	config.NRISocket = filepath.Join(dir, "taken.sock") // testNRI finds the socket that is used instead
	taken, err := unixsocket.Listen(config.NRISocket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() }) // nothing connects for long
	r := start(t, config)
	conn, err := r.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, conn, dir)
	images := importArchive(t, r)
	if len(images) != 1 || images[0].Name != imageName {
		t.Fatalf("imported %v, want one image %s", images, imageName)
	}
	t.Run("Images", func(t *testing.T) { testImages(t, c, images[0]) })
	t.Run("Import", func(t *testing.T) { testImport(t, r, images) })
	t.Run("Pull", func(t *testing.T) { testPulls(t, &puller{r, c.images, dir}) })
	t.Run("Container", func(t *testing.T) { testContainer(t, c) })
	t.Run("FreeLayers", func(t *testing.T) { testFreeLayers(t, r, c, config.Root) })
	t.Run("Stop", func(t *testing.T) { testStop(t, c) })
	t.Run("Tasks", func(t *testing.T) { testTasks(t, c, tasks.NewTasksClient(conn)) })
	t.Run("NRI", func(t *testing.T) { testNRI(t, c, dir) })
	t.Run("Exec", func(t *testing.T) { testExec(t, c) })
	t.Run("ExecWithLimitedOutput", func(t *testing.T) { testExecLimited(t, c) })
	t.Run("Events", func(t *testing.T) { testEvents(t, c) })
	t.Run("UnreadEvents", func(t *testing.T) { testUnreadEvents(t, c) })
	t.Run("Localnet", func(t *testing.T) { testLocalnet(t, c, dir) })
	t.Run("Network", func(t *testing.T) { testNetwork(t, c) })
	t.Run("CNI", func(t *testing.T) { testCNI(t, c, dir) })
	t.Run("LostNamespace", func(t *testing.T) { testLostNamespace(t, c, dir) })
	t.Run("Ranges", func(t *testing.T) { testRanges(t, c, dir) })
	t.Run("Sandbox", func(t *testing.T) { testSandbox(t, c) })
	t.Run("SandboxUsers", func(t *testing.T) { testSandboxUsers(t, c, dir) })
	t.Run("SandboxStats", func(t *testing.T) { testSandboxStats(t, c) })
	t.Run("SharedProcesses", func(t *testing.T) { testSharedProcesses(t, c) })
	t.Run("Socket", func(t *testing.T) { testSocket(t, r, dir) })
	t.Run("Second", func(t *testing.T) { testSecond(t, dir) })
}

// start runs a runtime in this process until the test ends, then removes its network.
func start(t *testing.T, config runtime.Config) *runtime.Runtime {
	t.Helper()
	r := runtime.New(config)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		removed := r.RemoveNetwork(context.Background())
		stop()
		// This process goes on to listen on the socket for NRI plugins, so that Sweep keeps the directory.
		if err := errors.Join(removed, <-ended, unixsocket.RemoveDir(context.Background(), config.Root)); err != nil {
			t.Error(err)
		}
	})
	return r
}

func importArchive(t *testing.T, r *runtime.Runtime) []runtime.Image {
	t.Helper()
	images, err := r.Import(t.Context(), bytes.NewReader(archive(t)))
	if err != nil {
		t.Fatal(err)
	}
	return images
}

// The CRI lists an imported image at once. Sandboxes need no image.
func testImages(t *testing.T, c *client, imported runtime.Image) {
	list, err := c.images.ListImages(t.Context(), &cri.ListImagesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	pinned := map[string]bool{}
	for _, image := range list.Images {
		for _, name := range image.RepoTags {
			name, _, _ = strings.Cut(name, ":")
			pinned[name] = image.Pinned
		}
	}
	want := map[string]bool{"berth.test/workload": false}
	if diff := cmp.Diff(want, pinned); diff != "" {
		t.Errorf("images by name, pinned or not (-want +got):\n%s", diff)
	}
	if imported.Size == 0 || !strings.HasPrefix(imported.Digest, "sha256:") {
		t.Errorf("imported image has digest %q and %d bytes", imported.Digest, imported.Size)
	}
}

// A compressed archive imports the same images, and a file that is not an archive is refused.
func testImport(t *testing.T, r *runtime.Runtime, want []runtime.Image) {
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	if _, err := w.Write(archive(t)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := r.Import(t.Context(), &compressed)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("imported from a compressed archive (-want +got):\n%s", diff)
	}
	if _, err := r.Import(t.Context(), strings.NewReader("no archive")); err == nil {
		t.Error("a file that is not an archive was imported")
	}
}

func testContainer(t *testing.T, c *client) {
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("log")})
	container := c.container(t, id, pod, "speaker", "print", "hello", "then", "error", "oops", "then", "exit", "7")
	if code := c.exitCode(t, container); code != 7 {
		t.Errorf("exit code %d, want 7", code)
	}
	var lines []string
	for line := range strings.Lines(readFile(filepath.Join(c.logs, "speaker.log"))) {
		_, rest, _ := strings.Cut(line, " ") // without the time
		lines = append(lines, rest)
	}
	slices.Sort(lines) // lines of different streams have no defined order
	if diff := cmp.Diff([]string{"stderr F oops\n", "stdout F hello\n"}, lines); diff != "" {
		t.Errorf("log file (-want +got):\n%s", diff)
	}
}

// A graceful stop ends a container by SIGTERM, an ungraceful one by SIGKILL.
func testStop(t *testing.T, c *client) {
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("stop")})
	for name, test := range map[string]struct {
		grace int64
		args  []string
		want  int32
	}{
		"obedient": {30, []string{"print", "up", "then", "sleep", "3"}, 3},
		"stubborn": {0, []string{"stubborn"}, 137},
	} {
		container := c.container(t, id, pod, name, test.args...)
		if test.grace > 0 { // the program must install its signal handler before the signal
			eventually.True(t, "container speaks", func() bool {
				return strings.Contains(readFile(filepath.Join(c.logs, name+".log")), "up")
			})
		}
		if _, err := c.StopContainer(t.Context(),
			&cri.StopContainerRequest{ContainerId: container, Timeout: test.grace}); err != nil {
			t.Fatal(err)
		}
		if code := c.exitCode(t, container); code != test.want {
			t.Errorf("%s: exit code %d, want %d", name, code, test.want)
		}
	}
}

// The runtime keeps only as much of a command's output as its caller reads.
func testExecLimited(t *testing.T, c *client) {
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("limited")})
	container := c.container(t, id, pod, "main", "sleep")
	ctx := calls.LimitOutput(t.Context(), 5)
	run := func(id string, timeout int64, command ...string) (*cri.ExecSyncResponse, error) {
		return c.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: id, Cmd: command, Timeout: timeout})
	}
	got, err := run(container, 0, "/workload", "print", "in here", "then", "error", "not there", "then", "exit", "4")
	if err != nil || string(got.Stdout) != "in he" || string(got.Stderr) != "not t" || got.ExitCode != 4 {
		t.Errorf("%v, %v", got, err)
	}
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	got, err = run(container, 60, "/workload", "pour", "/dev/stdout", "64000000", "1000000000")
	goruntime.ReadMemStats(&after)
	if err != nil || len(got.Stdout) != 5 || got.ExitCode != 0 {
		t.Errorf("a command with 64 MB of output: %v, %v", got, err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 8<<20 {
		t.Errorf("a command with 64 MB of output needed %d bytes of memory", used)
	}
	for name, test := range map[string]struct {
		id      string
		timeout int64
		command []string
		want    codes.Code
	}{
		"its time is over": {container, 1, []string{"/workload", "pour", "/dev/stdout", "0", "1000000"},
			codes.DeadlineExceeded},
		"no such container": {"none", 1, []string{"/workload", "true"}, codes.NotFound},
		"no such program":   {container, 10, []string{"/none"}, codes.Unknown},
	} {
		if got, err := run(test.id, test.timeout, test.command...); status.Code(err) != test.want {
			t.Errorf("%s: %v, %v; want the code %v", name, got, err, test.want)
		}
	}
}

// The layer of a removed container is free when FreeLayers returns, and not when containerd collects garbage next.
func testFreeLayers(t *testing.T, r *runtime.Runtime, c *client, root string) {
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("layer")})
	container := c.container(t, id, pod, "main", "fill", "/large", "1000000")
	c.exitCode(t, container)
	large := func() []string {
		found, err := filepath.Glob(filepath.Join(root, "io.containerd.snapshotter.v1.overlayfs/snapshots/*/fs/large"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if len(large()) != 1 {
		t.Fatal("the layer of the container is not where it is expected")
	}
	if _, err := c.RemoveContainer(t.Context(), &cri.RemoveContainerRequest{ContainerId: container}); err != nil {
		t.Fatal(err)
	}
	if err := r.FreeLayers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := large(); len(left) > 0 {
		t.Errorf("the layer of a removed container is there: %v", left)
	}
}

// The connection of the CRI serves containerd's tasks too: package cri ends a task there that the CRI has forgotten.
func testTasks(t *testing.T, c *client, service tasks.TasksClient) {
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("direct")})
	running := c.container(t, id, pod, "running", "sleep")
	ctx := metadata.AppendToOutgoingContext(t.Context(), "containerd-namespace", "k8s.io")
	if _, err := service.Kill(ctx, &tasks.KillRequest{ContainerID: running, Signal: 9, All: true}); err != nil {
		t.Fatal(err)
	}
	if code := c.exitCode(t, running); code != 137 {
		t.Errorf("exit code %d after a kill, want 137", code)
	}
}

func testExec(t *testing.T, c *client) {
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("exec")})
	container := c.container(t, id, pod, "main", "sleep")
	response, err := c.ExecSync(t.Context(), &cri.ExecSyncRequest{
		ContainerId: container,
		Cmd:         []string{"/workload", "print", "in here", "then", "exit", "4"},
		Timeout:     10,
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(response.Stdout); got != "in here\n" || response.ExitCode != 4 {
		t.Errorf("exec printed %q and exited with %d", got, response.ExitCode)
	}
	// The CRI plugin serves exec streams at a URL on loopback.
	exec, err := c.Exec(t.Context(),
		&cri.ExecRequest{ContainerId: container, Cmd: []string{"/workload", "true"}, Stdout: true})
	if err != nil {
		t.Fatal(err)
	}
	if address, err := url.Parse(exec.Url); err != nil || address.Hostname() != "127.0.0.1" {
		t.Errorf("exec streams at %q, want a URL on 127.0.0.1 (%v)", exec.Url, err)
	}
}

func testEvents(t *testing.T, c *client) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	stream, err := c.GetContainerEvents(ctx, &cri.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("events")})
	container := c.container(t, id, pod, "brief", "true")
	want := []cri.ContainerEventType{
		cri.ContainerEventType_CONTAINER_CREATED_EVENT,
		cri.ContainerEventType_CONTAINER_STARTED_EVENT,
		cri.ContainerEventType_CONTAINER_STOPPED_EVENT,
	}
	var got []cri.ContainerEventType
	for len(got) < len(want) {
		event, err := stream.Recv()
		if err != nil {
			t.Fatalf("after %v: %v", got, err)
		}
		if event.ContainerId == container {
			got = append(got, event.ContainerEventType)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events of a container (-want +got):\n%s", diff)
	}
}

// A client that reads no events delays nobody's calls. It gets all of them when it reads.
func testUnreadEvents(t *testing.T, c *client) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*timeout)
	defer cancel()
	stream, err := c.GetContainerEvents(ctx, &cri.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("unread"),
		Annotations: map[string]string{"large": strings.Repeat("x", 16<<10)}}) // few fit into a socket's buffers
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	removed := map[string]bool{}
	for range 70 { // containerd keeps 100 events for a client
		created, err := c.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: id, SandboxConfig: pod,
			Config: &cri.ContainerConfig{Metadata: &cri.ContainerMetadata{Name: "c"}, Args: []string{"true"},
				Image: &cri.ImageSpec{Image: imageName}, Linux: &cri.LinuxContainerConfig{}}})
		if err == nil {
			removed[created.ContainerId] = true
			_, err = c.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: created.ContainerId})
		}
		if err != nil {
			t.Fatalf("after %d containers: %v", len(removed), err)
		}
	}
	for len(removed) > 0 {
		event, err := stream.Recv()
		if err != nil {
			t.Fatalf("%d containers have no event of their removal: %v", len(removed), err)
		}
		if event.ContainerEventType == cri.ContainerEventType_CONTAINER_DELETED_EVENT {
			delete(removed, event.ContainerId)
		}
	}
}

// A pod has an address of each family. Other pods and the host reach it there; the host also reaches it at its host
// port.
func testNetwork(t *testing.T, c *client) {
	const hostPort = 28080
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{
		Metadata:     meta("server"),
		PortMappings: []*cri.PortMapping{{Protocol: cri.Protocol_TCP, ContainerPort: 8080, HostPort: hostPort}},
	})
	c.container(t, id, pod, "server", "serve")
	status, err := c.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		t.Fatal(err)
	}
	network := status.Status.Network
	if !strings.HasPrefix(network.Ip, "10.202.0.") || len(network.AdditionalIps) != 1 ||
		!strings.HasPrefix(network.AdditionalIps[0].Ip, "fd62:6572:7468:202::") {
		t.Fatalf("addresses of the pod: %v", network)
	}
	v4 := "http://" + net.JoinHostPort(network.Ip, "8080") + "/"
	v6 := "http://" + net.JoinHostPort(network.AdditionalIps[0].Ip, "8080") + "/"
	for _, address := range []string{v4, v6, fmt.Sprintf("http://127.0.0.1:%d/", hostPort)} {
		eventually.True(t, address+" answers as the pod", func() bool {
			return strings.Contains(get(address), "host server\n")
		})
	}
	other, otherPod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("client")})
	if code := c.exitCode(t, c.container(t, other, otherPod, "client", "get", v4, v6)); code != 0 {
		t.Errorf("a pod cannot reach another: client exited with %d", code)
	}
}

// get returns the body at an address, or "" after an error. It keeps no connection open, since pods come and go at an
// address or port.
func get(address string) string {
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(address)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return ""
	}
	return string(body)
}

// With a shared PID namespace, the holder is PID 1, and the kernel reaps orphaned processes of the containers.
func testSharedProcesses(t *testing.T, c *client) {
	namespaces := &cri.NamespaceOption{Pid: cri.NamespaceMode_POD}
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{
		Metadata: meta("shared"),
		Linux: &cri.LinuxPodSandboxConfig{
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: namespaces}},
	})
	watcher := c.container(t, id, pod, "watcher", "sleep")
	c.exitCode(t, c.container(t, id, pod, "parent", "fork", "3"))
	eventually.True(t, "only the holder, watcher and the exec are left", func() bool {
		response, err := c.ExecSync(t.Context(),
			&cri.ExecSyncRequest{ContainerId: watcher, Cmd: []string{"/workload", "ls", "/proc"}})
		if err != nil {
			t.Fatal(err)
		}
		var processes int
		for name := range strings.FieldsSeq(string(response.Stdout)) {
			if _, err := strconv.Atoi(name); err == nil {
				processes++
			}
		}
		return processes == 3
	})
	began := time.Now()
	if _, err := c.StopPodSandbox(t.Context(), &cri.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("stopping the sandbox took %s", took)
	}
}

// The runtime also serves the CRI on a socket, to root only.
func testSocket(t *testing.T, r *runtime.Runtime, dir string) {
	listener, err := runtime.Listen(socket(dir))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Serve(ctx, listener) }()
	info, err := os.Stat(strings.TrimPrefix(socket(dir), "unix://"))
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o600 {
		t.Errorf("socket has mode %o, want 600", got)
	}
	if _, err := runtime.Listen(socket(dir)); err == nil {
		t.Error("a socket in use was replaced")
	}
	version, err := cri.NewRuntimeServiceClient(dial(t, dir)).Version(ctx, &cri.VersionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if version.RuntimeName != "containerd" || version.RuntimeApiVersion != "v1" {
		t.Errorf("version over the socket: %v", version)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func testSecond(t *testing.T, dir string) {
	second := runtime.New(testConfig(filepath.Join(dir, "second")))
	err := second.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "one per process") {
		t.Errorf("a second runtime in one process: %v", err)
	}
	if _, err := second.Conn(t.Context()); err == nil {
		t.Error("a failed runtime returned a connection")
	}
}

// dial connects to the runtime that serves a socket in dir.
func dial(t testing.TB, dir string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(socket(dir), insecureCredentials())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
