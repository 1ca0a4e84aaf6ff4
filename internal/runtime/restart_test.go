package runtime_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/metadata"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/runtime"
	"github.com/berth-run/berth/internal/runtime/network/rules"
)

const selfPath = "/proc/self/exe"

// unstarted makes a container whose process is killed before its start: an agent was killed between the creation and
// the start, and the next one before it had deleted the task. Its root file system belongs to a running container.
func (c *client) unstarted(t *testing.T, service tasks.TasksClient, config runtime.Config, running, sandbox string,
	pod *cri.PodSandboxConfig) string {
	t.Helper()
	created, err := c.CreateContainer(t.Context(), &cri.CreateContainerRequest{PodSandboxId: sandbox,
		SandboxConfig: pod, Config: &cri.ContainerConfig{Metadata: &cri.ContainerMetadata{Name: "unstarted"},
			Image: &cri.ImageSpec{Image: imageName}, Args: []string{"sleep"}, Linux: &cri.LinuxContainerConfig{}}})
	if err != nil {
		t.Fatal(err)
	}
	id := created.ContainerId
	ctx := metadata.AppendToOutgoingContext(t.Context(), "containerd-namespace", "k8s.io")
	_, err = service.Create(ctx, &tasks.CreateTaskRequest{ContainerID: id,
		RuntimePath: filepath.Join(config.Root, "bin/containerd-shim-runc-v2"),
		Rootfs: []*types.Mount{{Type: "bind", Options: []string{"rbind"},
			Source: filepath.Join(config.State, "tasks/k8s.io", running, "rootfs")}}})
	if err == nil {
		_, err = service.Kill(ctx, &tasks.KillRequest{ContainerID: id, Signal: uint32(unix.SIGKILL)})
	}
	if err == nil {
		_, err = service.Wait(ctx, &tasks.WaitRequest{ContainerID: id})
	}
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// The agent is killed and its binary replaced. Containers run on, and the next agent finds them. It also learns the
// exit code of a container that ended while no agent ran.
func TestRestart(t *testing.T) {
	dir := scratchWithImage(t)
	binary := filepath.Join(t.TempDir(), "berth")
	copySelf(t, binary)
	began := time.Now()
	agent := serveChild(t, dir, binary)
	t.Cleanup(func() { kill(t, agent) })
	conn := dial(t, dir)
	c := newClient(t, conn, dir)
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("restart")})
	staying := c.container(t, id, pod, "staying", "sleep")
	leaving := c.container(t, id, pod, "leaving", "until", "/go", "then", "print", "last words", "then", "exit", "5")
	pids := map[string]int{staying: c.pid(t, staying), leaving: c.pid(t, leaving)}

	unstarted := c.unstarted(t, tasks.NewTasksClient(conn), testConfig(dir), staying, id, pod)

	kill(t, agent)
	if err := os.Remove(binary); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/root/go", pids[leaving]), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	awaitExitRecord(t, dir, leaving)
	copySelf(t, binary)
	age(t, dir)
	agent = serveChild(t, dir, binary)

	if got := c.status(t, unstarted).State; got != cri.ContainerState_CONTAINER_CREATED {
		t.Errorf("the container whose process was killed before its start is %s", got)
	}
	if code := c.exitCode(t, leaving); code != 5 {
		t.Errorf("exit code of a container that ended while no agent ran: %d, want 5", code)
	}
	eventually.True(t, "output from the time without an agent is in the log", func() bool {
		return strings.Contains(readFile(filepath.Join(dir, "logs", "leaving.log")), "last words")
	})
	if status := c.status(t, staying); status.State != cri.ContainerState_CONTAINER_RUNNING ||
		c.pid(t, staying) != pids[staying] {
		t.Errorf("container after the restart: %v, pid %d, had %d", status, c.pid(t, staying), pids[staying])
	}
	if _, err := c.ExecSync(t.Context(),
		&cri.ExecSyncRequest{ContainerId: staying, Cmd: []string{"/workload", "true"}}); err != nil {
		t.Error(err)
	}
	// The old pod has kept its files, and can have more containers.
	if code := c.exitCode(t, c.container(t, id, pod, "more", "cat", "/etc/resolv.conf")); code != 0 {
		t.Errorf("a new container of a pod from before the restart exited with %d", code)
	}
	boxes, err := c.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, box := range boxes.Items {
		if box.CreatedAt < began.UnixNano() {
			t.Errorf("a sandbox from before the restart is listed as created at %d", box.CreatedAt)
		}
	}
	// The shim has continued as the new program. The file of the old one goes at the next start.
	c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("upgraded")})
	if got := shims(t, dir); got != 2 {
		t.Errorf("%d versions of the shim are installed, want 2", got)
	}
	c.removeAll(t)
	eventually.True(t, "old shim ends", func() bool { return len(running(dir)) == 0 })

	kill(t, agent)
	agent = serveChild(t, dir, binary)
	if got := shims(t, dir); got != 1 {
		t.Errorf("%d versions of the shim are installed after the old one's last pod has ended, want 1", got)
	}
	removeNetwork(t, dir)
}

// An agent was killed when the CRI plugin had forgotten a container whose task was still there, or a loss of power took
// what the plugin knew. The next agent removes the task, so that the shim can end, and the container's file system.
func TestForgottenContainer(t *testing.T) {
	c := serveKillable(t)
	images := snapshots(t, c.dir)
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("forgotten")})
	running := c.container(t, id, pod, "running", "sleep")
	service := tasks.NewTasksClient(dial(t, c.dir))
	waiting := c.unstarted(t, service, testConfig(c.dir), running, id, pod)
	c.kill(t)
	records := filepath.Join(c.dir, "root/io.containerd.grpc.v1.cri/containers")
	for _, container := range []string{running, waiting} {
		if err := os.RemoveAll(filepath.Join(records, container)); err != nil {
			t.Fatal(err)
		}
	}
	c.start(t)
	for _, container := range []string{running, waiting} {
		bundle := filepath.Join(testConfig(c.dir).State, "tasks/k8s.io", container)
		if _, err := os.Stat(bundle); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the task of a container that the CRI plugin has forgotten is still there: %v", err)
		}
	}
	c.removeAll(t)
	eventually.True(t, "the shim ends", func() bool { return runningPrograms(c.dir, "containerd-shim") == 0 })
	eventually.True(t, "only the file systems of images are left", func() bool { return snapshots(t, c.dir) == images })
	removeNetwork(t, c.dir)
}

// snapshots returns the number of file systems: of the layers of images, and of containers.
func snapshots(t *testing.T, dir string) int {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(testConfig(dir).Root, "io.containerd.snapshotter.v1.*/snapshots/*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// A loss of power empties the file with the exit of a container that was being deleted. The container has ended for the
// CRI plugin, and can be removed.
func TestExitIsLostWithThePower(t *testing.T) {
	c := serveKillable(t)
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("lost")})
	container := c.container(t, id, pod, "running", "sleep")
	process := c.pid(t, container)
	c.kill(t)
	for pid := range running(c.dir) {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	// It may have ended with the holder.
	if err := unix.Kill(process, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		t.Fatal(err)
	}
	state := testConfig(c.dir).State
	bundle := filepath.Join(state, "tasks/k8s.io", container)
	if err := unix.Unmount(filepath.Join(bundle, "rootfs"), unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(bundle); err != nil {
		t.Fatal(err)
	}
	exit := filepath.Join(state, "exits/k8s.io", container)
	if err := errors.Join(os.MkdirAll(filepath.Dir(exit), 0o700), os.WriteFile(exit, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	c.start(t)
	if status := c.status(t, container); status.State != cri.ContainerState_CONTAINER_EXITED || status.ExitCode == 0 {
		t.Errorf("the container is %s with exit code %d, want an unknown one", status.State, status.ExitCode)
	}
	c.end(t)
}

// Containers end at the moment when the runtime does. The next one knows their exit codes.
func TestContainersEndWithTheRuntime(t *testing.T) {
	const containers, rounds = 10, 4
	c := serveKillable(t)
	for round := range rounds {
		id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta(fmt.Sprintf("ends%d", round))})
		pids := map[string]int{}
		for i := range containers {
			container := c.container(t, id, pod, fmt.Sprintf("c%d", i), "sleep")
			pids[container] = c.pid(t, container)
		}
		if err := c.process.Process.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		for _, pid := range pids {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(round) * time.Millisecond) // the ends are spread over the end of the runtime
		}
		if err := c.process.Wait(); err != nil {
			t.Fatalf("the runtime ended with %v", err)
		}
		c.start(t)
		for container := range pids {
			if code := c.exitCode(t, container); code != 128+int32(unix.SIGKILL) {
				t.Errorf("exit code %d, want that of SIGKILL", code)
			}
		}
	}
	c.end(t)
}

// Only the shim knows a container, whose bundle is gone. The shim ends with the runtime nevertheless.
func TestShimEndsWithAnUnknownContainer(t *testing.T) {
	c := serveKillable(t)
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("unknown")})
	leaving := c.container(t, id, pod, "leaving", "sleep")
	waiting := c.unstarted(t, tasks.NewTasksClient(dial(t, c.dir)), testConfig(c.dir), leaving, id, pod)
	bundle := filepath.Join(testConfig(c.dir).State, "tasks/k8s.io", waiting)
	if err := unix.Unmount(filepath.Join(bundle, "rootfs"), unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(bundle); err != nil {
		t.Fatal(err)
	}
	c.kill(t)
	c.start(t)
	c.removeAll(t)
	if runningPrograms(c.dir, "containerd-shim") == 0 {
		t.Fatal("the shim has ended although it has a container: this test shows nothing")
	}
	if err := c.process.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.process.Wait(); err != nil {
		t.Errorf("the runtime ended with %v", err)
	}
	if n := runningPrograms(c.dir, "containerd-shim"); n > 0 {
		t.Errorf("%d shims are left after the runtime's end", n)
	}
	c.start(t)
	c.end(t)
}

// A sandbox ends with its holder, whether a runtime runs at that time or not. Its containers then end too. A holder
// ends if its record is damaged.
func TestSandboxEnds(t *testing.T) {
	c := serveKillable(t)
	dir := c.dir
	boxes := map[string]string{}
	for _, name := range []string{"present", "away", "damaged"} {
		id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta(name)})
		c.container(t, id, pod, "main", "sleep")
		boxes[name] = id
	}
	end := func(box string) {
		t.Helper()
		for pid, path := range running(dir) {
			if strings.HasPrefix(filepath.Base(path), "holder") && strings.Contains(
				readFile(fmt.Sprintf("/proc/%d/cmdline", pid)), boxes[box]) {
				if err := unix.Kill(pid, unix.SIGKILL); err != nil {
					t.Error(err)
				}
				return
			}
		}
		t.Errorf("sandbox %s has no holder", box)
	}
	await := func(box string) {
		t.Helper()
		eventually.True(t, "sandbox "+box+" is not ready", func() bool {
			list, err := c.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{
				Filter: &cri.PodSandboxFilter{Id: boxes[box]}})
			return err == nil && len(list.Items) == 1 && list.Items[0].State == cri.PodSandboxState_SANDBOX_NOTREADY
		})
	}
	end("present")
	await("present")

	damaged := c.holder(t, boxes["damaged"])
	c.kill(t)
	end("away")
	record, err := filepath.Glob(filepath.Join(dir, "state", "holders", boxes["damaged"]+"*"))
	if err != nil || len(record) != 1 {
		t.Fatalf("records of a sandbox: %v, %v", record, err)
	}
	if err := os.WriteFile(record[0], []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.start(t)
	await("away")
	await("damaged")
	eventually.True(t, "the holder without a record ends", func() bool { return running(dir)[damaged] == "" })
	c.end(t)
}

// A shim that answers late while the runtime starts, as on a busy machine, does not count as dead: its container runs
// on.
func TestSlowShim(t *testing.T) {
	c := serveKillable(t)
	dir := c.dir
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("slow")})
	staying := c.container(t, id, pod, "staying", "sleep")
	pid := c.pid(t, staying)

	c.kill(t)
	slow := slices.Collect(maps.Keys(running(dir)))
	if len(slow) == 0 {
		t.Fatal("there is no shim")
	}
	signal := func(s unix.Signal) {
		for _, pid := range slow {
			if err := unix.Kill(pid, s); err != nil {
				t.Error(err)
			}
		}
	}
	signal(unix.SIGSTOP)
	goesOn := make(chan struct{})
	time.AfterFunc(6*time.Second, func() {
		defer close(goesOn)
		signal(unix.SIGCONT)
	}) // containerd's default limits are 2 s and 5 s
	c.start(t)
	<-goesOn

	if status := c.status(t, staying); status.State != cri.ContainerState_CONTAINER_RUNNING ||
		c.pid(t, staying) != pid {
		t.Errorf("container of a slow shim: %v, pid %d, had %d", status, c.pid(t, staying), pid)
	}
	c.end(t)
}

// After a reboot, the pods from before are reported as ended and can be removed, and new pods start.
func TestReboot(t *testing.T) {
	c := serveKillable(t)
	dir := c.dir
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("before")})
	container := c.container(t, id, pod, "main", "sleep")

	c.kill(t)
	if found := destroy(dir); len(found) == 0 {
		t.Error("nothing ran before the reboot")
	}
	if err := os.RemoveAll(testConfig(dir).State); err != nil {
		t.Fatal(err)
	}
	c.start(t)

	status, err := c.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		t.Fatal(err)
	}
	if status.Status.State != cri.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("sandbox after the reboot is %s", status.Status.State)
	}
	if code := c.exitCode(t, container); code != 255 {
		t.Errorf("unknown exit code is reported as %d, want 255", code)
	}
	id, pod = c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("after")})
	if code := c.exitCode(t, c.container(t, id, pod, "after", "true")); code != 0 {
		t.Errorf("exit code of a container after the reboot: %d", code)
	}
	c.end(t)
}

// Where overlayfs does not work, containers get copies of their image. It does not work here because the root is on an
// overlayfs.
func TestNoOverlay(t *testing.T) {
	dir := scratchWithImage(t)
	for _, name := range []string{"root", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	root := filepath.Join(dir, "root")
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", t.TempDir(), filepath.Join(dir, "upper"),
		filepath.Join(dir, "work"))
	if err := unix.Mount("overlay", root, "overlay", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		endShims(t, dir)
		// The kernel may hold the mount for a moment after the end of a process that ran from it.
		eventually.True(t, "the root is unmounted", func() bool { return unix.Unmount(root, 0) == nil })
	})
	agent := serveChild(t, dir, selfPath)
	t.Cleanup(func() { kill(t, agent) })
	c := newClient(t, dial(t, dir), dir)
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("copy")})
	if code := c.exitCode(t,
		c.container(t, id, pod, "main", "write", "/file", "text", "then", "cat", "/file")); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(filepath.Join(root, "io.containerd.snapshotter.v1.native", "snapshots", "1")); err != nil {
		t.Error(err)
	}
	c.removeAll(t)
	removeNetwork(t, dir)
}

// The machine's CNI configuration takes precedence over the built-in network.
func TestForeignNetwork(t *testing.T) {
	dir := scratchWithImage(t)
	config := testConfig(dir)
	if err := os.Mkdir(config.CNIConfDir, 0o755); err != nil {
		t.Fatal(err)
	}
	const list = `{"cniVersion": "1.0.0", "name": "foreign", "plugins": [{
		"type": "bridge", "bridge": "berthrt0", "isGateway": true,
		"ipam": {"type": "host-local", "dataDir": "%s/ipam", "ranges": [[{"subnet": "10.202.9.0/24"}]]}}]}`
	if err := os.WriteFile(filepath.Join(config.CNIConfDir, "10-foreign.conflist"), fmt.Appendf(nil, list, dir),
		0o644); err != nil {
		t.Fatal(err)
	}
	agent := serveChild(t, dir, selfPath)
	t.Cleanup(func() { kill(t, agent) })
	c := newClient(t, dial(t, dir), dir)
	id, _ := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("foreign")})
	status, err := c.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		t.Fatal(err)
	}
	if got := status.Status.Network.Ip; !strings.HasPrefix(got, "10.202.9.") {
		t.Errorf("pod has address %s, want one of the foreign network", got)
	}
	c.removeAll(t)
	removeNetwork(t, dir)
}

// A second process cannot run a runtime on the same root.
func TestLock(t *testing.T) {
	dir := scratchWithImage(t)
	first := serveChild(t, dir, selfPath)
	t.Cleanup(func() { kill(t, first) })
	out, err := child(dir, selfPath).CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("another process runs a runtime there")) {
		t.Errorf("a second runtime on the same root ended with %v:\n%s", err, out)
	}
}

// A process that was killed while it tried overlayfs leaves that mount to the next start.
func TestTemporaryMounts(t *testing.T) {
	c := serveKillable(t)
	c.kill(t)
	check := filepath.Join(c.dir, "root", "tmpmounts", "multiple-lowerdir-check1")
	merged := filepath.Join(check, "merged")
	if err := os.MkdirAll(merged, 0o755); err != nil {
		t.Fatal(err)
	}
	options := fmt.Sprintf("lowerdir=%s:%s", t.TempDir(), check)
	if err := unix.Mount("overlay", merged, "overlay", unix.MS_RDONLY, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(merged, unix.MNT_DETACH) })
	c.start(t)
	if _, err := os.Lstat(check); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v, want it removed", check, err)
	}
	c.end(t)
}

// scratchWithImage is scratch with the test image, which serve imports.
func scratchWithImage(t testing.TB) string {
	t.Helper()
	dir := scratch(t)
	putArchive(t, dir)
	return dir
}

// killable is a runtime in a process of its own. Tests kill it and start it again.
type killable struct {
	*client
	dir     string
	process *exec.Cmd
}

// serveKillable starts a runtime in a directory of its own, with the image of the workload. It is killed at the test's
// end.
func serveKillable(t testing.TB) *killable {
	t.Helper()
	k := &killable{dir: scratchWithImage(t)}
	k.start(t)
	t.Cleanup(func() { k.kill(t) })
	k.client = newClient(t, dial(t, k.dir), k.dir)
	return k
}

func (k *killable) start(t testing.TB) {
	t.Helper()
	k.process = serveChild(t, k.dir, selfPath)
}

func (k *killable) kill(t testing.TB) {
	t.Helper()
	kill(t, k.process)
}

// end removes all sandboxes and the network.
func (k *killable) end(t testing.TB) {
	t.Helper()
	k.removeAll(t)
	removeNetwork(t, k.dir)
}

// removeNetwork removes the network of the runtime in dir. The packet filter then has no rule for it.
func removeNetwork(t testing.TB, dir string) {
	t.Helper()
	if err := runtime.New(testConfig(dir)).RemoveNetwork(t.Context()); err != nil {
		t.Error(err)
	}
	owners, err := rules.List(t.Context())
	if err != nil {
		t.Error(err)
	}
	for _, o := range owners {
		if o.Network == testConfig(dir).Bridge {
			t.Errorf("a rule of sandbox %s is left", o.Sandbox)
		}
	}
}

// child is the command that runs serve in another process. Its PATH contains no other containerd's shim.
func child(dir, binary string) *exec.Cmd {
	command := exec.Command(binary)
	command.Env = append(os.Environ(), serveEnv+"="+dir, "PATH=/usr/sbin:/sbin")
	return command
}

// serveChild starts a runtime in another process and waits until it answers.
func serveChild(t testing.TB, dir, binary string) *exec.Cmd {
	t.Helper()
	command := child(dir, binary)
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	version := cri.NewRuntimeServiceClient(dial(t, dir))
	eventually.True(t, "runtime serves", func() bool {
		_, err := version.Version(t.Context(), &cri.VersionRequest{})
		return err == nil
	})
	return command
}

// kill ends a process without warning, like a crash.
func kill(t testing.TB, command *exec.Cmd) {
	t.Helper()
	if err := command.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = command.Wait() // returns an error, since the process was killed
}

// copySelf copies the test binary.
func copySelf(t *testing.T, path string) {
	t.Helper()
	content, err := os.ReadFile(selfPath)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o755); err != nil {
		t.Fatal(err)
	}
}

const installedShims = "root/bin/containerd-shim-runc-v2-*"

// age makes the installed shim look as if an earlier version had installed it.
func age(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, installedShims))
	if err != nil || len(files) != 1 {
		t.Fatalf("installed shims: %q, %v", files, err)
	}
	name := "containerd-shim-runc-v2"
	old := filepath.Join(dir, "root", "bin", name+"-0123456789ab")
	if err := errors.Join(os.Rename(files[0], old), os.Remove(filepath.Join(dir, "root", "bin", name)),
		os.Symlink(old, filepath.Join(dir, "root", "bin", name))); err != nil {
		t.Fatal(err)
	}
}

// shims counts the installed versions of the shim.
func shims(t *testing.T, dir string) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, installedShims))
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// pid is the process ID of a container on the host.
func (c *client) pid(t *testing.T, id string) int {
	t.Helper()
	response, err := c.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	var info struct{ Pid int }
	if err := json.Unmarshal([]byte(response.Info["info"]), &info); err != nil {
		t.Fatal(err)
	}
	return info.Pid
}
