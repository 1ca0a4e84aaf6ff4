package critest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/cri"
)

func (e Env) containers(t *testing.T, filter *runtimeapi.ContainerFilter) []*runtimeapi.Container {
	t.Helper()
	resp, err := e.Client.Runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: filter})
	if err != nil {
		t.Fatal(err)
	}
	return resp.Containers
}

func testContainerLifecycle(t *testing.T, env Env) {
	p := env.runPod(t, "life")
	config := p.containerConfig("c", "sleep")
	config.Labels, config.Annotations = unusualLabels(), unusualLabels()
	config.Labels["test"] = p.config.Labels["test"]
	id := p.create(t, config)

	created := env.container(t, id)
	if created.State != runtimeapi.ContainerState_CONTAINER_CREATED || created.CreatedAt == 0 ||
		created.StartedAt != 0 {
		t.Errorf("created: %s", created)
	}
	checkIdentity(t, created, config, created.Metadata, config.Metadata)
	if want := filepath.Join(p.config.LogDirectory, config.LogPath); created.LogPath != want {
		t.Errorf("log path %q, want %q", created.LogPath, want)
	}

	if _, err := env.Client.Runtime.StartContainer(t.Context(),
		&runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	running := env.container(t, id)
	if running.State != runtimeapi.ContainerState_CONTAINER_RUNNING || running.StartedAt < running.CreatedAt ||
		running.FinishedAt != 0 {
		t.Errorf("running: %s", running)
	}
	listed := env.containers(t, &runtimeapi.ContainerFilter{LabelSelector: config.Labels})
	want := []*runtimeapi.Container{{
		Id: id, PodSandboxId: p.id, Metadata: config.Metadata, Image: config.Image, ImageRef: running.ImageRef,
		State: runtimeapi.ContainerState_CONTAINER_RUNNING, CreatedAt: running.CreatedAt,
		Labels: config.Labels, Annotations: config.Annotations,
	}}
	if diff := cmp.Diff(want, listed, protocmp.Transform(),
		protocmp.IgnoreFields(&runtimeapi.Container{}, "image", "image_id")); diff != "" {
		t.Errorf("list: %s", diff)
	}

	env.stopContainer(t, id, 10)
	env.stopContainer(t, id, 10) // StopContainer is idempotent
	stopped := env.exited(t, id)
	if stopped.StartedAt != running.StartedAt || stopped.FinishedAt < stopped.StartedAt {
		t.Errorf("stopped: %s", stopped)
	}
	for range 2 { // RemoveContainer is idempotent
		if _, err := env.Client.Runtime.RemoveContainer(t.Context(),
			&runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
	if left := env.containers(t, &runtimeapi.ContainerFilter{Id: id}); len(left) != 0 {
		t.Errorf("after its removal: %s", left)
	}
}

func testContainerExitCodes(t *testing.T, env Env) {
	p := env.runPod(t, "codes")
	for _, test := range []struct {
		name   string
		args   []string
		code   int32
		reason string
	}{
		{"success", []string{"exit", "0"}, 0, "Completed"},
		{"failure", []string{"exit", "3"}, 3, "Error"},
		{"high", []string{"exit", "255"}, 255, "Error"},
	} {
		id := p.run(t, p.containerConfig(test.name, test.args...))
		got := env.exited(t, id)
		if got.ExitCode != test.code || got.Reason != test.reason {
			t.Errorf("%s: exit code %d, reason %q", test.name, got.ExitCode, got.Reason)
		}
		// The two times are not compared: a runtime may record the start of a short container after its end.
		if got.StartedAt == 0 || got.FinishedAt == 0 {
			t.Errorf("%s: started at %d, finished at %d", test.name, got.StartedAt, got.FinishedAt)
		}
	}
}

// The error for a program that does not exist must differ from the error for a program that failed. Some runtimes
// report it at create, most at start.
func testContainerStartError(t *testing.T, env Env) {
	p := env.runPod(t, "absent")
	config := p.containerConfig("c")
	config.Command = []string{"/does-not-exist"}
	created, err := p.tryCreate(t, config)
	if err == nil {
		_, err = env.Client.Runtime.StartContainer(t.Context(),
			&runtimeapi.StartContainerRequest{ContainerId: created.ContainerId})
		if got := env.container(t, created.ContainerId); got.State == runtimeapi.ContainerState_CONTAINER_EXITED &&
			(got.ExitCode < 126 || !slices.Contains([]string{"StartError", "ContainerCannotRun"}, got.Reason)) {
			t.Errorf("exit code %d, reason %q", got.ExitCode, got.Reason)
		} else if got.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Error("the container is running")
		}
	}
	if err == nil || !strings.Contains(err.Error(), "/does-not-exist") {
		t.Errorf("error %v does not name the program", err)
	}
}

// A restart creates a new container with the next attempt number and its own log.
func testContainerAttempts(t *testing.T, env Env) {
	p := env.runPod(t, "again")
	got := map[uint32]int32{}
	for attempt, code := range []string{"4", "0"} {
		config := p.containerConfig("c", "print", "attempt "+code, "then", "exit", code)
		config.Metadata.Attempt = uint32(attempt)
		config.LogPath = filepath.Join("c", code+".log")
		if err := os.MkdirAll(filepath.Join(p.config.LogDirectory, "c"), 0o755); err != nil {
			t.Fatal(err)
		}
		env.exited(t, p.run(t, config))
		if diff := cmp.Diff([]logLine{{"stdout", "F", "attempt " + code}}, p.log(t, config)); diff != "" {
			t.Error(diff)
		}
	}
	for _, c := range env.containers(t, &runtimeapi.ContainerFilter{PodSandboxId: p.id}) {
		got[c.Metadata.Attempt] = env.container(t, c.Id).ExitCode
	}
	if diff := cmp.Diff(map[uint32]int32{0: 4, 1: 0}, got); diff != "" {
		t.Error(diff)
	}
}

func testContainerNameIsTakenOnce(t *testing.T, env Env) {
	p := env.runPod(t, "once")
	config := p.containerConfig("c", "sleep")
	id := p.create(t, config)
	if second, err := p.tryCreate(t, config); err == nil && second.ContainerId != id {
		t.Errorf("a second container of the same name: %s", second.ContainerId)
	}
	if listed := env.containers(t, &runtimeapi.ContainerFilter{PodSandboxId: p.id}); len(listed) != 1 {
		t.Errorf("%d containers", len(listed))
	}
}

func testContainerFilters(t *testing.T, env Env) {
	p, other := env.runPod(t, "a"), env.runPod(t, "b")
	running := p.runReady(t, "running", "sleep")
	exited := p.run(t, p.containerConfig("exited", "exit", "0"))
	created := other.create(t, other.containerConfig("created"))
	env.exited(t, exited)
	state := func(s runtimeapi.ContainerState) *runtimeapi.ContainerStateValue {
		return &runtimeapi.ContainerStateValue{State: s}
	}
	for _, test := range []struct {
		name   string
		filter *runtimeapi.ContainerFilter
		want   []string
	}{
		{"sandbox", &runtimeapi.ContainerFilter{PodSandboxId: p.id}, []string{running, exited}},
		{"sandbox and state",
			&runtimeapi.ContainerFilter{PodSandboxId: p.id, State: state(runtimeapi.ContainerState_CONTAINER_EXITED)},
			[]string{exited}},
		{"other state",
			&runtimeapi.ContainerFilter{PodSandboxId: other.id,
				State: state(runtimeapi.ContainerState_CONTAINER_CREATED)}, []string{created}},
		{"no such state",
			&runtimeapi.ContainerFilter{PodSandboxId: other.id,
				State: state(runtimeapi.ContainerState_CONTAINER_RUNNING)}, nil},
		{"id", &runtimeapi.ContainerFilter{Id: running}, []string{running}},
		{"id in other sandbox", &runtimeapi.ContainerFilter{Id: running, PodSandboxId: other.id}, nil},
		{"label", &runtimeapi.ContainerFilter{LabelSelector: other.config.Labels}, []string{created}},
		{"unknown sandbox", &runtimeapi.ContainerFilter{PodSandboxId: "0123456789abcdef"}, nil},
	} {
		var got []string
		for _, c := range env.containers(t, test.filter) {
			got = append(got, c.Id)
		}
		checkListed(t, test.name, got, test.want)
	}
}

func testContainerUnknown(t *testing.T, env Env) {
	const id = "0123456789abcdef"
	ctx, r := t.Context(), env.Client.Runtime
	_, err := r.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if !cri.IsNotFound(err) {
		t.Errorf("status: %v", err)
	}
	if _, err = r.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
		t.Errorf("remove: %v", err)
	}
	if _, err = r.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id}); err != nil &&
		!cri.IsNotFound(err) {
		t.Errorf("stop: %v", err)
	}
	if _, err = r.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err == nil {
		t.Error("start of an unknown container succeeds")
	}
	if _, err = r.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"/workload"}}); err == nil {
		t.Error("exec in an unknown container succeeds")
	}
	if _, err = r.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id}); err == nil {
		t.Error("reopening the log of an unknown container succeeds")
	}
}

func testContainerLog(t *testing.T, env Env) {
	p := env.runPod(t, "log")
	config := p.containerConfig("c",
		"print", "one", "", "  two ", "then", "error", "three", "then", "print", "vier: ä")
	env.exited(t, p.run(t, config))
	// The two streams are independent: only the order within each stream is defined.
	want := []logLine{{"stderr", "F", "three"}, {"stdout", "F", "one"}, {"stdout", "F", ""}, {"stdout", "F", "  two "},
		{"stdout", "F", "vier: ä"}}
	got := p.log(t, config)
	slices.SortStableFunc(got, func(a, b logLine) int { return strings.Compare(a.Stream, b.Stream) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func testContainerReopenLog(t *testing.T, env Env) {
	p := env.runPod(t, "rotate")
	config := p.containerConfig("c", "print", "first", "then", "log", "100", "8")
	id := p.run(t, config)
	p.awaitLine(t, config, "first")
	path := filepath.Join(p.config.LogDirectory, config.LogPath)
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if _, err := env.Client.Runtime.ReopenContainerLog(t.Context(),
		&runtimeapi.ReopenContainerLogRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "lines in the new log", func() bool { return len(p.log(t, config)) > 0 })
	if first := p.log(t, config)[0]; first.Text == "first" {
		t.Error("the new log starts with the old one's lines")
	}
	env.stopContainer(t, id, 10)
	// For a container that has ended, a runtime either creates a new file, or returns an error and creates none.
	_, err := env.Client.Runtime.ReopenContainerLog(t.Context(), &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
	if err == nil {
		p.log(t, config)
	}
}

func testContainerEnvAndWorkingDir(t *testing.T, env Env) {
	p := env.runPod(t, "env")
	dir := t.TempDir()
	config := p.containerConfig("c", "env", "GREETING", "EMPTY", "then", "write", "here", "text")
	config.WorkingDir = "/data/deep"
	config.Envs = []*runtimeapi.KeyValue{
		{Key: "GREETING", Value: []byte("hello = $(world) ü")}, {Key: "EMPTY", Value: nil},
	}
	config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: dir}}
	if err := os.Mkdir(filepath.Join(dir, "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := env.exited(t, p.run(t, config)); got.ExitCode != 0 {
		t.Errorf("exit code %d", got.ExitCode)
	}
	if diff := cmp.Diff([]logLine{{"stdout", "F", "hello = $(world) ü"}, {"stdout", "F", ""}},
		p.log(t, config)); diff != "" {
		t.Error(diff)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "deep", "here")); string(got) != "text\n" {
		t.Errorf("file written in the working directory: %q, %v", got, err)
	}
}

func testContainerMounts(t *testing.T, env Env) {
	p := env.runPod(t, "mounts")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "in"), []byte("from the host\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	writable := p.containerConfig("writable", "cat", "/mnt/in", "then", "write", "/mnt/out", "from the container")
	writable.Mounts = []*runtimeapi.Mount{{ContainerPath: "/mnt", HostPath: dir}}
	if got := env.exited(t, p.run(t, writable)); got.ExitCode != 0 {
		t.Errorf("writable mount: exit code %d", got.ExitCode)
	}
	if diff := cmp.Diff([]logLine{{"stdout", "F", "from the host"}}, p.log(t, writable)); diff != "" {
		t.Error(diff)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "out")); string(got) != "from the container\n" {
		t.Errorf("file written by the container: %q, %v", got, err)
	}

	readonly := p.containerConfig("readonly", "cat", "/mnt/in", "then", "write", "/mnt/no", "text")
	readonly.Mounts = []*runtimeapi.Mount{{ContainerPath: "/mnt", HostPath: dir, Readonly: true}}
	id := p.run(t, readonly)
	if got := env.exited(t, id); got.ExitCode != 1 {
		t.Errorf("writing to a read-only mount: exit code %d", got.ExitCode)
	}
	if _, err := os.Stat(filepath.Join(dir, "no")); err == nil {
		t.Error("a read-only mount was written to")
	}
	want := []*runtimeapi.Mount{{ContainerPath: "/mnt", HostPath: dir, Readonly: true}}
	if diff := cmp.Diff(want, env.container(t, id).Mounts, protocmp.Transform()); diff != "" {
		t.Errorf("mounts in the status: %s", diff)
	}
}

func testContainerUpdateResources(t *testing.T, env Env) {
	p := env.runPod(t, "resize")
	config := p.containerConfig("c", "print", "ready", "then", "sleep")
	config.Linux.Resources = &runtimeapi.LinuxContainerResources{CpuShares: 512, MemoryLimitInBytes: 64 << 20}
	id := p.run(t, config)
	update := &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 96 << 20}
	_, err := env.Client.Runtime.UpdateContainerResources(t.Context(),
		&runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: update})
	if err != nil {
		t.Fatal(err)
	}
	// Runtimes before CRI 1.25 do not report resources.
	if got := env.container(t, id).GetResources().GetLinux(); got != nil &&
		(got.MemoryLimitInBytes != 96<<20 || got.CpuShares != 512) {
		t.Errorf("resources in the status: %s", got)
	}
	if env.Processes {
		limit := env.exec(t, id, "cat", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
		if limit.ExitCode != 0 { // cgroup v2
			limit = env.exec(t, id, "cat", "/sys/fs/cgroup/memory.max")
		}
		if got := strings.TrimSpace(string(limit.Stdout)); got != "100663296" {
			t.Errorf("memory limit in the container: %q", got)
		}
	}
}

// containerd forgets a task if the caller of StartContainer is gone between two of its steps. The container can be
// removed nevertheless, and no process stays: neither on its own nor with its sandbox.
func testContainerForgottenTask(t *testing.T, env Env) {
	p := env.runPod(t, "forgotten")
	forgotten := func(name string) (id string) {
		id = p.run(t, p.containerConfig(name, "exit", "0"))
		env.exited(t, id)
		if err := env.StartTask(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if state := env.container(t, id).State; state != runtimeapi.ContainerState_CONTAINER_EXITED {
			t.Fatalf("the runtime knows of the task: %s", state)
		}
		return id
	}
	if _, err := env.Client.Runtime.RemoveContainer(t.Context(),
		&runtimeapi.RemoveContainerRequest{ContainerId: forgotten("alone")}); err != nil {
		t.Errorf("remove the container: %v", err)
	}
	forgotten("first")
	forgotten("second")
	if !p.stop(t) || !p.remove(t) {
		t.Error("the sandbox stays")
	}
	if left := env.containers(t, &runtimeapi.ContainerFilter{PodSandboxId: p.id}); len(left) != 0 {
		t.Errorf("after the removal: %s", left)
	}
}
