package runtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/metadata"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/base/pausetest"
	"github.com/berth-run/berth/internal/base/process"
	"github.com/berth-run/berth/internal/base/roottest"
	children "github.com/berth-run/berth/internal/runtime/shim/child"
	"github.com/berth-run/berth/internal/runtime/shim/record"
)

// A shim starts with the sandbox, so that the first container does not wait for it.
func TestShimStartsWithTheSandbox(t *testing.T) {
	c := serveKillable(t)
	c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("early")})
	eventually.True(t, "a shim runs", func() bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(running(c.dir))), func(program string) bool {
			return strings.HasPrefix(filepath.Base(program), "containerd-shim")
		})
	})
}

// The monitors of the shim and of runc sleep longer (package sysmon). What they start for a pod does not.
func TestTimerSlack(t *testing.T) {
	c := serveKillable(t)
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("slack")})
	terminal := c.run(t, id, pod, &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "terminal"}, Tty: true, Stdin: true, Args: []string{"sleep"},
		Linux: &cri.LinuxContainerConfig{},
	})
	main := c.container(t, id, pod, "main", "sleep")
	for name, pid := range map[string]int{
		"holder": c.holder(t, id), "container": c.pid(t, main), "container with a terminal": c.pid(t, terminal),
	} {
		for _, slack := range slacks(t, pid) {
			if slack != usualSlack {
				t.Errorf("a thread of the %s has the timer slack %q", name, slack)
			}
		}
	}
	if got := c.exec(t, main, "cat", "/proc/self/timerslack_ns"); got != usualSlack {
		t.Errorf("a command has the timer slack %q", got)
	}
	if all := slacks(t, shimPID(t, c.dir)); !slices.Contains(all, "4000000\n") {
		t.Errorf("no thread of the shim sleeps longer: %q", all)
	}
	c.end(t)
}

// usualSlack is the timer slack that the kernel gives to programs, in ns.
const usualSlack = "50000\n"

// slacks returns the timer slacks of the threads of a process.
func slacks(t *testing.T, pid int) (all []string) {
	t.Helper()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads { // their own directories do not have the file
		if slack := readFile(fmt.Sprintf("/proc/%s/timerslack_ns", thread.Name())); slack != "" { // it may have ended
			all = append(all, slack)
		}
	}
	return all
}

// The shim is killed again and again while a container writes and commands are executed. No container ends, no output
// is lost, and the exit code of a container that ends in between is known.
func TestShimKilled(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	c := serveKillable(t)
	dir := c.dir
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("killed")})
	writer := c.container(t, id, pod, "writer", "log", "2000", "100")
	staying := c.container(t, id, pod, "staying", "sleep")
	pids := map[string]int{writer: c.pid(t, writer), staying: c.pid(t, staying)}
	// Signals above 31 are the C library's: make leaves two of them ignored for all that it starts.
	status := readFile(fmt.Sprintf("/proc/%d/status", pids[staying]))
	if !regexp.MustCompile(`(?m)^SigIgn:\t[0-9a-f]{8}[08]0000000$`).MatchString(status) {
		t.Errorf("a container ignores signals:\n%s", status)
	}

	const rounds = 5
	var leaving [rounds]string // one ends in each round
	for round := range rounds {
		leaving[round] = c.container(t, id, pod, fmt.Sprint("leaving", round), "print", "up", "then", "sleep", "5")
	}
	for round := range rounds {
		eventually.True(t, "container runs", func() bool {
			return strings.Contains(readFile(filepath.Join(dir, "logs", fmt.Sprintf("leaving%d.log", round))), "up")
		})
	}
	for round, leaving := range leaving {
		pid := c.pid(t, leaving)
		var commands sync.WaitGroup
		for range 3 {
			commands.Go(func() {
				// A command that is being started while its shim ends fails. One that starts later does not.
				_, _ = c.ExecSync(t.Context(),
					&cri.ExecSyncRequest{ContainerId: staying, Cmd: []string{"/workload", "true"}})
			})
		}
		killed := time.Now()
		if err := unix.Kill(shimPID(t, dir), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(pid, unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if _, err := c.ContainerStats(t.Context(), &cri.ContainerStatsRequest{ContainerId: staying}); err != nil {
			t.Error(err)
		}
		t.Logf("the next shim answered after %s", time.Since(killed))
		commands.Wait()
		if _, err := c.ExecSync(t.Context(),
			&cri.ExecSyncRequest{ContainerId: staying, Cmd: []string{"/workload", "true"}}); err != nil {
			t.Errorf("command after the end of shim %d: %v", round, err)
		}
		if code := c.exitCode(t, leaving); code != lostExitCode(t, 5) {
			t.Errorf("exit code of a container that ended without a shim: %d, want %d", code, lostExitCode(t, 5))
		}
	}
	// A shim that is killed cannot remove the specification of a command that it starts. It has the environment.
	scratch := filepath.Join(filepath.Dir(shimSocket(t, dir)), "tmp")
	for _, of := range []string{os.TempDir(), scratch} {
		if left, err := os.ReadDir(of); err != nil || len(left) > 0 {
			t.Errorf("temporary files in %s: %v, %v", of, left, err)
		}
	}
	for container, pid := range pids {
		if status := c.status(t, container); status.State != cri.ContainerState_CONTAINER_RUNNING ||
			c.pid(t, container) != pid {
			t.Errorf("container %s after the ends of its shims: %v, pid %d, had %d", status.Metadata.Name, status,
				c.pid(t, container), pid)
		}
	}
	if err := unix.Kill(pids[writer], unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := c.exitCode(t, writer); code != 0 {
		t.Errorf("exit code of the writer: %d", code)
	}
	checkSequence(t, filepath.Join(dir, "logs", "writer.log"))
	c.removeAll(t)
	eventually.True(t, "a shim without containers ends", func() bool { return len(running(dir)) == 0 })
	removeNetwork(t, dir)
}

// The shim is killed when a command that it has started has ended. The agent did not get the answer to the start, and
// repeats it with the next shim: the command does not run again, and its exit code is known.
func TestShimKilledAfterCommandHasEnded(t *testing.T) {
	c := serveKillable(t)
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("command")})
	staying := c.container(t, id, pod, "staying", "sleep")
	service := tasks.NewTasksClient(dial(t, c.dir))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "containerd-namespace", "k8s.io")
	const name = "command"
	spec, err := typeurl.MarshalAnyToProto(&specs.Process{Args: []string{"/workload", "exit", "5"}, Cwd: "/"})
	if err == nil {
		_, err = service.Exec(ctx, &tasks.ExecProcessRequest{ContainerID: staying, ExecID: name, Spec: spec})
	}
	if err != nil {
		t.Fatal(err)
	}
	started, err := service.Start(ctx, &tasks.StartRequest{ContainerID: staying, ExecID: name})
	if err != nil {
		t.Fatal(err)
	}
	for _, shim := range []string{"the first shim", "the next shim"} {
		ended, err := service.Wait(ctx, &tasks.WaitRequest{ContainerID: staying, ExecID: name})
		if err != nil || ended.ExitStatus != 5 {
			t.Errorf("%s: exit of the command: %v, %v, want 5", shim, ended, err)
		}
		if err := unix.Kill(shimPID(t, c.dir), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		again, err := service.Start(ctx, &tasks.StartRequest{ContainerID: staying, ExecID: name})
		if err != nil || again.Pid != started.Pid {
			t.Errorf("the start repeated after %s: %v, %v, want process %d", shim, again, err, started.Pid)
		}
	}
	c.end(t)
}

// The shim is killed while it creates containers. Each creation is repeated, and the output arrives.
func TestShimKilledWhileItCreates(t *testing.T) {
	c := serveKillable(t)
	dir := c.dir
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("creating")})
	c.container(t, id, pod, "first", "sleep")
	// The files that appear in the course of a creation, in the bundle and in runc's state.
	steps := []string{"task.json", "rootfs/workload", "stdout", "exec.fifo", "state.json"}
	for round, file := range slices.Concat(steps, steps) {
		name := fmt.Sprint("main", round)
		shim := shimPID(t, dir)
		container, started := c.starting(t, id, pod, name)
		eventually.True(t, file+" is there", func() bool {
			task := taskOf(dir, container)
			_, err := os.Stat(filepath.Join(dir, "state/tasks/k8s.io", container, file))
			_, inState := os.Stat(filepath.Join(task.Runtime.Root, "k8s.io", container, file))
			return err == nil || inState == nil
		})
		if err := unix.Kill(shim, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		started()
		eventually.True(t, "output is in the log",
			func() bool { return strings.Contains(readFile(filepath.Join(dir, "logs", name+".log")), "up") })
	}
	c.end(t)
}

// The shim is killed while it starts a container: the first process has found a reader of its FIFO, and writes after
// the shim has ended. So it fails. The next shim creates it again, and the start succeeds.
func TestShimKilledWhileItStarts(t *testing.T) {
	c := serveKillable(t)
	dir := c.dir
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("starting")})
	c.container(t, id, pod, "first", "sleep")
	const hits, rounds = 3, 50
	var containers []string
	for hit, round := 0, 0; hit < hits; round++ {
		if round == rounds {
			t.Fatalf("only %d of %d containers waited for their start", hit, rounds)
		}
		name := fmt.Sprint("main", round)
		container, started := c.starting(t, id, pod, name)
		init := awaitInit(t, dir, container)
		if stopped(t, init, func() {
			shim := shimPID(t, dir)
			if err := unix.Kill(shim, unix.SIGKILL); err != nil {
				t.Error(err)
			}
			eventually.True(t, "the shim has ended", func() bool {
				stat, err := children.ReadStat(shim)
				return err != nil || stat.State == "Z"
			})
		}) {
			hit++
		}
		started()
		log := filepath.Join(dir, "logs", name+".log")
		eventually.True(t, "output is in the log",
			func() bool { return strings.Contains(readFile(log), "stdout F up") })
		if strings.Contains(readFile(log), "stderr") {
			t.Errorf("round %d: the log has output of the process that failed: %s", round, readFile(log))
		}
		containers = append(containers, container)
	}
	if err := unix.Kill(shimPID(t, dir), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, id := range containers {
		if status := c.status(t, id); status.State != cri.ContainerState_CONTAINER_RUNNING {
			t.Errorf("container %s after the end of another shim: %v", status.Metadata.Name, status)
		}
	}
	c.end(t)
}

// starting creates a container that writes into the log NAME.log and sleeps, and starts it in the background. started
// waits for the start, and fails the test if that fails or hangs.
func (c *client) starting(t *testing.T, sandbox string, pod *cri.PodSandboxConfig, name string) (id string,
	started func()) {
	t.Helper()
	created, err := c.CreateContainer(t.Context(), &cri.CreateContainerRequest{
		PodSandboxId: sandbox, SandboxConfig: pod,
		Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: name}, Image: &cri.ImageSpec{Image: imageName},
			Args: []string{"print", "up", "then", "sleep"}, LogPath: name + ".log",
			Linux: &cri.LinuxContainerConfig{},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() {
		_, err := c.StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: created.ContainerId})
		result <- err
	}()
	return created.ContainerId, func() {
		t.Helper()
		select {
		case err := <-result:
			if err != nil {
				t.Errorf("start of %s: %v", name, err)
			}
		case <-time.After(timeout):
			t.Fatalf("the start of %s hangs", name)
		}
	}
}

// awaitInit waits until the shim has recorded the first process of a container. It looks without a pause: the process
// goes on at once.
func awaitInit(t *testing.T, dir, container string) (pid int) {
	t.Helper()
	for until := time.Now().Add(timeout); time.Now().Before(until); {
		if pid := taskOf(dir, container).Init.Pid; pid != 0 {
			return pid
		}
	}
	t.Fatalf("the shim has no process of %s", container)
	return 0
}

// taskOf reads the shim's record of a container. It has no values while there is none.
func taskOf(dir, container string) (task record.Container) {
	content := readFile(filepath.Join(dir, "state/tasks/k8s.io", container, "task.json"))
	if json.Unmarshal([]byte(content), &task) != nil {
		return record.Container{}
	}
	return task
}

// stopped calls do after a process that waits for the start of its container has opened the FIFO, and before it
// writes. It returns false if the process no longer waits.
func stopped(t *testing.T, pid int, do func()) bool {
	t.Helper()
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	wait := func() {
		t.Helper()
		var status unix.WaitStatus
		eventually.True(t, "the process stops", func() bool {
			n, err := unix.Wait4(pid, &status, unix.WALL|unix.WNOHANG, nil)
			return err == nil && n == pid
		})
	}
	if err := unix.PtraceSeize(pid); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.PtraceDetach(pid) }()
	if err := unix.PtraceInterrupt(pid); err != nil {
		t.Fatal(err)
	}
	wait()
	if !strings.HasPrefix(readFile(fmt.Sprintf("/proc/%d/comm", pid)), "runc:[") {
		return false
	}
	for range 2 { // the beginning of the system call that opens the FIFO, and its end
		if err := unix.PtraceSyscall(pid, 0); err != nil {
			t.Fatal(err)
		}
		wait()
	}
	do()
	return true
}

// The OCI runtime is killed while it creates a container, after it has made the container's cgroup and before it has
// recorded the container. Nothing of the container is left, while its pod lives on.
func TestInterruptedCreationLeavesNoCgroup(t *testing.T) {
	dir := scratchWithImage(t)
	t.Setenv(handlerEnv, "1")
	// A second runc by another name, whose create command is killed.
	script := `#!/bin/sh
case " $* " in *" create "*)
	for id; do :; done
	` + dir + `/root/bin/runc "$@" &
	while :; do
		for cgroup in /sys/fs/cgroup/` + cgroup + `/*/$id /sys/fs/cgroup/*/` + cgroup + `/*/$id; do
			[ ! -d $cgroup ] || { kill -9 $!; wait; exit 1; }
		done
	done
esac
exec ` + dir + `/root/bin/runc "$@"
`
	if err := os.WriteFile(filepath.Join(dir, "second"), []byte(script), 0o700); err != nil { //nolint:gosec // runs
		t.Fatal(err)
	}
	agent := serveChild(t, dir, selfPath)
	t.Cleanup(func() { kill(t, agent) })
	c := newClient(t, dial(t, dir), dir)
	pod := &cri.PodSandboxConfig{Metadata: meta("interrupted"), LogDirectory: c.logs,
		Linux: &cri.LinuxPodSandboxConfig{CgroupParent: "/" + cgroup + "/interrupted"}}
	box, err := c.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: pod, RuntimeHandler: "second"})
	if err != nil {
		t.Fatal(err)
	}
	created, err := c.CreateContainer(t.Context(), &cri.CreateContainerRequest{
		PodSandboxId: box.PodSandboxId, SandboxConfig: pod, Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: "app"}, Image: &cri.ImageSpec{Image: imageName},
			Args: []string{"sleep"}, Linux: &cri.LinuxContainerConfig{},
		}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.StartContainer(t.Context(),
		&cri.StartContainerRequest{ContainerId: created.ContainerId}); err == nil {
		t.Fatal("a container started whose creation was killed")
	}
	for _, path := range podCgroups() {
		if strings.Contains(path, created.ContainerId) {
			t.Errorf("left after a creation that was killed: %s with the processes %q", path,
				readFile(filepath.Join(path, "cgroup.procs")))
		}
	}
	c.removeAll(t)
	removeNetwork(t, dir)
}

// A file system does not answer while a container is created, and the caller gives up. Nothing of the container is
// left, and the shim starts others.
func TestHangingCreation(t *testing.T) {
	c := serveKillable(t)
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("stuck")})
	volume := filepath.Join(c.dir, "remote", "volume")
	if err := os.MkdirAll(volume, 0o700); err != nil {
		t.Fatal(err)
	}
	created, err := c.CreateContainer(t.Context(), &cri.CreateContainerRequest{
		PodSandboxId: id, SandboxConfig: pod, Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: "stuck"}, Image: &cri.ImageSpec{Image: imageName},
			Args: []string{"sleep"}, Linux: &cri.LinuxContainerConfig{},
			Mounts: []*cri.Mount{{HostPath: volume, ContainerPath: "/volume"}},
		}})
	if err != nil {
		t.Fatal(err)
	}
	release, err := roottest.Hang(filepath.Dir(volume))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := release(); err != nil {
			t.Error(err)
		}
	})
	short, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := c.StartContainer(short, &cri.StartContainerRequest{ContainerId: created.ContainerId}); err == nil {
		t.Error("a container started whose volume does not answer")
	}
	eventually.True(t, "nothing of the container is left", func() bool {
		return !slices.ContainsFunc(podCgroups(), func(path string) bool {
			return strings.Contains(path, created.ContainerId)
		})
	})
	c.container(t, id, pod, "other", "sleep")
	c.end(t)
}

// The agent is killed after it has deleted an ended container and before it has recorded the exit. The next agent still
// finds the exit code.
func TestExitOfDeletedContainer(t *testing.T) {
	c := serveKillable(t)
	dir := c.dir
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("deleted")})
	leaving := c.container(t, id, pod, "leaving", "print", "up", "then", "sleep", "5")
	eventually.True(t, "container runs",
		func() bool { return strings.Contains(readFile(filepath.Join(dir, "logs", "leaving.log")), "up") })
	recorded := filepath.Join(dir, "root/io.containerd.grpc.v1.cri/containers", leaving, "status")
	running := readFile(recorded)
	if err := unix.Kill(c.pid(t, leaving), unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := c.exitCode(t, leaving); code != 5 {
		t.Fatalf("exit code %d, want 5", code)
	}
	for range 2 { // also if the next agent is killed so early
		c.kill(t)
		if err := os.WriteFile(recorded, []byte(running), 0o600); err != nil {
			t.Fatal(err)
		}
		c.start(t)
		if code := c.exitCode(t, leaving); code != 5 {
			t.Errorf("exit code that the agent before has not recorded: %d, want 5", code)
		}
	}
	c.end(t)
}

// A terminal outlives the shim: its container is not hung up, and the size still changes.
func TestTerminalOfKilledShim(t *testing.T) {
	c := serveKillable(t)
	dir := c.dir
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("terminal")})
	main := c.run(t, id, pod, &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "main"}, Tty: true, Stdin: true, Args: []string{"log", "100", "20"},
		Linux: &cri.LinuxContainerConfig{},
	})
	pid := c.pid(t, main)
	log := filepath.Join(dir, "logs", "main.log")
	eventually.True(t, "the container has written", func() bool { return readFile(log) != "" })
	if err := unix.Kill(shimPID(t, dir), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	before := readFile(log)
	if _, err := c.ExecSync(t.Context(),
		&cri.ExecSyncRequest{ContainerId: main, Cmd: []string{"/workload", "true"}}); err != nil {
		t.Error(err)
	}
	eventually.True(t, "the container writes on", func() bool { return len(readFile(log)) > len(before) })
	if err := unix.Kill(pid, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := c.exitCode(t, main); code != 0 {
		t.Errorf("exit code %d of a container with a terminal", code)
	}
	checkSequence(t, log)
	c.end(t)
}

// A container ends while its shim is dead and the next one has not started yet. Its last output is in the log.
func TestOutputWithoutShim(t *testing.T) {
	c := serveKillable(t)
	id, pod := c.sandbox(t, hostPod(c.client, "output"))
	for name, terminal := range map[string]bool{"plain": false, "terminal": true} {
		t.Run(name, func(t *testing.T) {
			main := c.run(t, id, pod, &cri.ContainerConfig{
				Metadata: &cri.ContainerMetadata{Name: name}, Tty: terminal,
				Args: []string{"print", "before", "then", "until", "/go", "then", "print", "after"},
			})
			log := filepath.Join(c.dir, "logs", name+".log")
			eventually.True(t, "the container has written", func() bool { return readFile(log) != "" })
			pid, shim := c.pid(t, main), shimPID(t, c.dir)
			if err := pausetest.Pause(c.process.Process); err != nil { // it starts no other shim
				t.Fatal(err)
			}
			resume := func() { _ = c.process.Process.Signal(unix.SIGCONT) }
			defer resume()
			if err := unix.Kill(shim, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(fmt.Sprintf("/proc/%d/root/go", pid), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			eventually.True(t, "the container and the owner of its terminal have ended", func() bool {
				for _, program := range running(c.dir) {
					if strings.HasSuffix(program, "shim-runc-v2") {
						return false
					}
				}
				return readFile(fmt.Sprintf("/proc/%d/cmdline", pid)) == ""
			})
			resume()
			c.exitCode(t, main)
			if got := readFile(log); !strings.Contains(got, "after") {
				t.Errorf("the log lacks the last output: %q", got)
			}
		})
	}
	c.end(t)
}

// A shim that does not answer, also to an agent of another version, is replaced. Its containers run on.
func TestShimHangs(t *testing.T) {
	c := serveKillable(t)
	dir := c.dir
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("hung")})
	staying := c.container(t, id, pod, "staying", "sleep")
	pid := c.pid(t, staying)
	check := func() {
		t.Helper()
		if _, err := c.ExecSync(t.Context(),
			&cri.ExecSyncRequest{ContainerId: staying, Cmd: []string{"/workload", "true"}}); err != nil {
			t.Error(err)
		}
		if c.pid(t, staying) != pid {
			t.Error("the container was started again")
		}
	}

	hung := shimPID(t, dir)
	hang(t, hung)
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.ContainerStats(short, &cri.ContainerStatsRequest{ContainerId: staying}); err == nil {
		t.Error("a shim that is stopped has answered")
	}
	eventually.True(t, "the shim is replaced", func() bool { return running(dir)[hung] == "" })
	check()

	c.kill(t)
	hang(t, shimPID(t, dir))
	age(t, dir)
	c.start(t)
	check()
	c.end(t)
}

// hang stops a shim with SIGSTOP. The shim is then a child of the agent or of process 1, and the test kills it in the
// end.
func hang(t *testing.T, shim int) {
	t.Helper()
	process, err := os.FindProcess(shim) // by descriptor, so that no other process gets the signals
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Kill() })
	if err := pausetest.Pause(process); err != nil {
		t.Fatal(err)
	}
}

// A container is killed for lack of memory, and the shim is killed too, both while no agent runs. The next agent still
// knows the exit code and the reason.
func TestOOMWithoutAgent(t *testing.T) {
	c := serveKillable(t)
	dir := c.dir
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("memory")})
	const limit = 64 << 20
	greedy := c.run(t, id, pod, &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "greedy"},
		Args:     []string{"print", "up", "then", "until", "/go", "then", "eat", "500000000"},
		Linux: &cri.LinuxContainerConfig{Resources: &cri.LinuxContainerResources{
			MemoryLimitInBytes: limit, MemorySwapLimitInBytes: limit,
		}},
	})
	log := filepath.Join(dir, "logs", "greedy.log")
	eventually.True(t, "container runs", func() bool { return strings.Contains(readFile(log), "up") })
	pid := c.pid(t, greedy)

	c.kill(t)
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/root/go", pid), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	awaitExitRecord(t, dir, greedy)
	if err := unix.Kill(shimPID(t, dir), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.start(t)
	const killed = 137
	if code := c.exitCode(t, greedy); code != killed {
		t.Errorf("exit code %d, want %d", code, killed)
	}
	eventually.True(t, "the reason is known", func() bool { return c.status(t, greedy).Reason == "OOMKilled" })
	c.end(t)
}

// awaitExitRecord waits until the shim has recorded the exit of a container.
func awaitExitRecord(t *testing.T, dir, container string) {
	t.Helper()
	eventually.True(t, "the shim records the exit", func() bool {
		return strings.Contains(readFile(filepath.Join(dir, "state/tasks/k8s.io", container, "task.json")), `"exited"`)
	})
}

// Thirty pods are removed at the same time. None waits for another's end.
func TestParallelRemovals(t *testing.T) {
	c := serveKillable(t)
	dir := c.dir
	const pods = 30
	var ids [pods]string
	var all sync.WaitGroup
	start := time.Now()
	for i := range pods {
		all.Go(func() {
			pod := hostPod(c.client, fmt.Sprint("removal", i))
			box, err := c.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: pod})
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = box.PodSandboxId
			c.container(t, ids[i], pod, fmt.Sprint("main", i), "sleep")
		})
	}
	all.Wait()
	t.Logf("%d pods in %s", pods, time.Since(start))
	start = time.Now()
	for _, id := range ids {
		all.Go(func() {
			_, stopped := c.StopPodSandbox(t.Context(), &cri.StopPodSandboxRequest{PodSandboxId: id})
			_, removed := c.RemovePodSandbox(t.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: id})
			if stopped != nil || removed != nil {
				t.Error(stopped, removed)
			}
		})
	}
	all.Wait()
	took := time.Since(start)
	t.Logf("%d removals in %s", pods, took)
	// The stock task service took 10 to 33 s. A quiet machine needs less than a second.
	if took > 8*time.Second {
		t.Errorf("%d removals took %s", pods, took)
	}
	removeNetwork(t, dir)
}

// hostPod is a pod in the host's network, so that no network is set up for it.
func hostPod(c *client, name string) *cri.PodSandboxConfig {
	return &cri.PodSandboxConfig{
		Metadata: meta(name), LogDirectory: c.logs,
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent: "/" + cgroup + "/" + name,
			SecurityContext: &cri.LinuxSandboxSecurityContext{
				NamespaceOptions: &cri.NamespaceOption{Network: cri.NamespaceMode_NODE},
			},
		},
	}
}

// shimPID waits until the runtime in dir has a shim, and returns its process ID. A shim that was killed has none for a
// moment.
func shimPID(t *testing.T, dir string) (shim int) {
	t.Helper()
	eventually.True(t, "there is a shim", func() bool {
		for pid := range running(dir) {
			if slices.Contains(process.Arguments(pid), "serve") && process.Executes(pid) {
				shim = pid
				return true
			}
		}
		return false
	})
	return shim
}

// shimSocket returns the path of the socket of the shim of the runtime in dir.
func shimSocket(t *testing.T, dir string) string {
	t.Helper()
	path := socketOf(shimPID(t, dir))
	if path == "" {
		t.Fatal("the shim has no socket")
	}
	return path
}

// socketOf returns the path of the socket of a shim, or "" for another process.
func socketOf(pid int) string {
	for _, argument := range process.Arguments(pid) {
		if path, ok := strings.CutPrefix(argument, "-socket="); ok {
			return path
		}
	}
	return ""
}

// lostExitCode is the exit code that the runtime reports for a process that ended while no shim ran. The kernel keeps
// the real one since version 6.15.
func lostExitCode(t *testing.T, code int32) int32 {
	t.Helper()
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	if major < 6 || major == 6 && minor < 15 {
		return 255
	}
	return code
}

// checkSequence checks that the numbered lines of a log are complete and in order.
func checkSequence(t *testing.T, file string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	next := 0
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		const stampStreamTagText = 4
		if len(fields) < stampStreamTagText {
			t.Fatalf("line %q", line)
		}
		number, err := strconv.Atoi(strings.TrimRight(fields[3], "x"))
		if err != nil {
			continue // the last words of the workload
		}
		if number != next {
			t.Fatalf("line %d of the log follows line %d", number, next-1)
		}
		next++
	}
	if next == 0 {
		t.Errorf("the log has no line: %.200q", content)
	}
	t.Logf("%d lines", next)
}
