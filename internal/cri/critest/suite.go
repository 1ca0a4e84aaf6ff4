package critest

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/cri"
)

// Env is a runtime under test and the features that it has.
type Env struct {
	Client *cri.Client
	// Image is the reference of the test workload (test/image). The image is in the runtime's store.
	Image string
	// Logs is an existing absolute directory for container logs.
	Logs string
	// CgroupParent is the cgroup parent of every sandbox; "" is the runtime's default.
	CgroupParent string
	// Processes says that containers are processes of this machine. The suite then also tests their network, cgroups
	// and users. The fake has no processes.
	Processes bool
	// ExecGroups says that the runtime kills the whole process group of a command that timed out.
	ExecGroups bool
	// HostPorts says that the pod network forwards ports of the machine.
	HostPorts bool
	// Events says that the runtime has GetContainerEvents.
	Events bool
	// StartTask starts the program of an ended container once more without the knowledge of the runtime's CRI service;
	// nil if the runtime has no other interface.
	StartTask func(ctx context.Context, container string) error
}

// killed is the exit code of a process that got SIGKILL.
const killed = 137

// timeout is how long the suite waits for something that the runtime does in the background.
const timeout = 30 * time.Second

// Suite tests the behaviour that every runtime must have. It calls newRuntime once. newRuntime stops the runtime in
// t.Cleanup, after the suite has removed its pods.
func Suite(t *testing.T, newRuntime func(t *testing.T) Env) {
	env := newRuntime(t)
	for _, part := range []struct {
		name string
		test func(*testing.T, Env)
	}{
		{"Version", testVersion},
		{"Sandbox/Lifecycle", testSandboxLifecycle},
		{"Sandbox/Attempts", testSandboxAttempts},
		{"Sandbox/NameIsTakenOnce", testSandboxNameIsTakenOnce},
		{"Sandbox/Filters", testSandboxFilters},
		{"Sandbox/Unknown", testSandboxUnknown},
		{"Sandbox/HostNetwork", testSandboxHostNetwork},
		{"Sandbox/StopEndsContainers", testSandboxStopEndsContainers},
		{"Sandbox/StopEndsContainersOfOwnPID", testSandboxStopEndsContainersOfOwnPID},
		{"Sandbox/RemoveRemovesContainers", testSandboxRemoveRemovesContainers},
		{"Container/Lifecycle", testContainerLifecycle},
		{"Container/ExitCodes", testContainerExitCodes},
		{"Container/StartError", testContainerStartError},
		{"Container/ForgottenTask", testContainerForgottenTask},
		{"Container/Attempts", testContainerAttempts},
		{"Container/NameIsTakenOnce", testContainerNameIsTakenOnce},
		{"Container/Filters", testContainerFilters},
		{"Container/Unknown", testContainerUnknown},
		{"Container/Log", testContainerLog},
		{"Container/ReopenLog", testContainerReopenLog},
		{"Container/EnvAndWorkingDir", testContainerEnvAndWorkingDir},
		{"Container/Mounts", testContainerMounts},
		{"Container/UpdateResources", testContainerUpdateResources},
		{"Stop/Graceful", testStopGraceful},
		{"Stop/KillsAfterGrace", testStopKillsAfterGrace},
		{"Stop/WithoutGrace", testStopWithoutGrace},
		{"Exec/Output", testExecOutput},
		{"Exec/Errors", testExecErrors},
		{"Exec/Timeout", testExecTimeout},
		{"Exec/TimeoutGroup", testExecTimeoutGroup},
		{"Image/Status", testImageStatus},
		{"Image/Unknown", testImageUnknown},
		{"Events", testEvents},
		{"Parallel", testParallel},
		{"Process/Network", testProcessNetwork},
		{"Process/HostPort", testProcessHostPort},
		{"Process/User", testProcessUser},
		{"Process/RootFilesystem", testProcessRootFilesystem},
		{"Process/PodFiles", testProcessPodFiles},
		{"Process/OOM", testProcessOOM},
	} {
		t.Run(part.name, func(t *testing.T) {
			t.Parallel()
			if !env.Events && part.name == "Events" {
				t.Skip("the runtime has no container events")
			}
			if !env.HostPorts && part.name == "Process/HostPort" {
				t.Skip("the pod network has no host ports")
			}
			if env.StartTask == nil && part.name == "Container/ForgottenTask" {
				t.Skip("the runtime has no interface beside the CRI")
			}
			if !env.Processes && strings.HasPrefix(part.name, "Process/") {
				t.Skip("the runtime has no processes")
			}
			part.test(t, env)
		})
	}
}

// pod is the sandbox of a test.
type pod struct {
	Env
	id     string
	config *runtimeapi.PodSandboxConfig
}

// podConfig is the config of a sandbox of t. Its uid and its label "test" are unique to the test and the name.
func (e Env) podConfig(t *testing.T, name string) *runtimeapi.PodSandboxConfig {
	uid := strings.ReplaceAll(t.Name(), "/", "-") + "-" + name
	return &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "critest", Uid: uid},
		Hostname:     name,
		LogDirectory: filepath.Join(e.Logs, uid),
		Labels:       map[string]string{"test": uid},
		Linux:        &runtimeapi.LinuxPodSandboxConfig{CgroupParent: e.CgroupParent},
	}
}

// runPod runs a sandbox whose config edit may change, and removes it at the end of the test.
func (e Env) runPod(t *testing.T, name string, edit ...func(*runtimeapi.PodSandboxConfig)) *pod {
	t.Helper()
	config := e.podConfig(t, name)
	for _, f := range edit {
		f(config)
	}
	if err := os.MkdirAll(config.LogDirectory, 0o755); err != nil {
		t.Fatal(err)
	}
	resp, err := e.Client.Runtime.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{Env: e, id: resp.PodSandboxId, config: config}
	t.Cleanup(func() {
		// A failure to stop or remove fails the test, and is retried so that no pod is left.
		eventually.True(t, "the pod is removed", func() bool { return p.stop(t) && p.remove(t) })
	})
	return p
}

// stop stops the sandbox and reports whether that succeeded. Like remove, it also works after the test's context has
// ended.
func (p *pod) stop(t *testing.T) bool {
	t.Helper()
	_, err := p.Client.Runtime.StopPodSandbox(context.WithoutCancel(t.Context()),
		&runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id})
	if err != nil && !cri.IsNotFound(err) {
		t.Error(err)
		return false
	}
	return true
}

func (p *pod) remove(t *testing.T) bool {
	t.Helper()
	_, err := p.Client.Runtime.RemovePodSandbox(context.WithoutCancel(t.Context()),
		&runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id})
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

func (p *pod) status(t *testing.T) *runtimeapi.PodSandboxStatus {
	t.Helper()
	resp, err := p.Client.Runtime.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id})
	if err != nil {
		t.Fatal(err)
	}
	return resp.Status
}

// containerConfig is the config of a container that runs the workload, with the kubelet's defaults.
func (p *pod) containerConfig(name string, args ...string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name},
		Image:    &runtimeapi.ImageSpec{Image: p.Image},
		Args:     args,
		LogPath:  name + ".log",
		Labels:   map[string]string{"test": p.config.Labels["test"]},
		Linux:    &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{}},
	}
}

func (p *pod) tryCreate(t *testing.T, config *runtimeapi.ContainerConfig) (*runtimeapi.CreateContainerResponse, error) {
	return p.Client.Runtime.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: p.id, Config: config, SandboxConfig: p.config,
	})
}

func (p *pod) create(t *testing.T, config *runtimeapi.ContainerConfig) (id string) {
	t.Helper()
	resp, err := p.tryCreate(t, config)
	if err != nil {
		t.Fatal(err)
	}
	return resp.ContainerId
}

// run creates and starts a container.
func (p *pod) run(t *testing.T, config *runtimeapi.ContainerConfig) (id string) {
	t.Helper()
	id = p.create(t, config)
	if _, err := p.Client.Runtime.StartContainer(t.Context(),
		&runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	return id
}

// runReady starts a container that prints "ready" before its actions, and waits for that line. Later signals thus reach
// the running program, not its loader.
func (p *pod) runReady(t *testing.T, name string, actions ...string) (id string) {
	t.Helper()
	config := p.containerConfig(name, append([]string{"print", "ready", "then"}, actions...)...)
	id = p.run(t, config)
	p.awaitLine(t, config, "ready")
	return id
}

// runStubborn starts a container that ignores SIGTERM, and waits until it does. The log action catches SIGTERM before
// it prints its line, so the signal cannot end the program after that line.
func (p *pod) runStubborn(t *testing.T, name string) (id string) {
	t.Helper()
	config := p.containerConfig(name, "log", "100", "1", "1", "then", "stubborn")
	id = p.run(t, config)
	p.awaitLine(t, config, "0")
	return id
}

func (e Env) container(t *testing.T, id string) *runtimeapi.ContainerStatus {
	t.Helper()
	resp, err := e.Client.Runtime.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		t.Fatal(err)
	}
	return resp.Status
}

// exited waits until a container has exited and returns its status.
func (e Env) exited(t *testing.T, id string) (status *runtimeapi.ContainerStatus) {
	t.Helper()
	eventually.True(t, "container exits", func() bool {
		status = e.container(t, id)
		return status.State == runtimeapi.ContainerState_CONTAINER_EXITED
	})
	return status
}

func (e Env) stopContainer(t *testing.T, id string, grace int64) {
	t.Helper()
	_, err := e.Client.Runtime.StopContainer(t.Context(),
		&runtimeapi.StopContainerRequest{ContainerId: id, Timeout: grace})
	if err != nil {
		t.Fatal(err)
	}
}

// exec runs an action of the workload in a container.
func (e Env) exec(t *testing.T, id string, action ...string) *runtimeapi.ExecSyncResponse {
	t.Helper()
	resp, err := e.Client.Runtime.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{
		ContainerId: id, Cmd: append([]string{"/workload"}, action...), Timeout: int64(timeout / time.Second),
	})
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// labelled is a status or a config of a sandbox or of a container.
type labelled interface {
	GetLabels() map[string]string
	GetAnnotations() map[string]string
}

// checkIdentity compares the labels, annotations and metadata in a status with the config.
func checkIdentity(t *testing.T, status, config labelled, gotMetadata, wantMetadata proto.Message) {
	t.Helper()
	if diff := cmp.Diff(wantMetadata, gotMetadata, protocmp.Transform()); diff != "" {
		t.Errorf("metadata: %s", diff)
	}
	if diff := cmp.Diff(config.GetLabels(), status.GetLabels()); diff != "" {
		t.Errorf("labels: %s", diff)
	}
	if diff := cmp.Diff(config.GetAnnotations(), status.GetAnnotations()); diff != "" {
		t.Errorf("annotations: %s", diff)
	}
}

// checkListed compares the ids that a filter listed with the expected ones, in any order.
func checkListed(t *testing.T, filter string, got, want []string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: %s", filter, diff)
	}
}

// logLine is one record of a container's log.
type logLine struct{ Stream, Tag, Text string }

// log reads a container's log, which must be in the CRI format:
// RFC3339NANO STREAM TAG TEXT.
func (p *pod) log(t *testing.T, config *runtimeapi.ContainerConfig) []logLine {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(p.config.LogDirectory, config.LogPath))
	if err != nil {
		t.Fatal(err)
	}
	var lines []logLine
	for line := range strings.Lines(string(content)) {
		line, whole := strings.CutSuffix(line, "\n")
		if !whole {
			break // the runtime is still writing it
		}
		at, rest, _ := strings.Cut(line, " ")
		stream, rest, _ := strings.Cut(rest, " ")
		tag, text, ok := strings.Cut(rest, " ")
		if _, err := time.Parse(time.RFC3339Nano, at); err != nil || !ok {
			t.Fatalf("log line %q is not in CRI format", line)
		}
		lines = append(lines, logLine{stream, tag, text})
	}
	return lines
}

func (p *pod) awaitLine(t *testing.T, config *runtimeapi.ContainerConfig, text string) {
	t.Helper()
	eventually.True(t, "container prints "+text, func() bool {
		for _, line := range p.log(t, config) {
			if line.Text == text {
				return true
			}
		}
		return false
	})
}
