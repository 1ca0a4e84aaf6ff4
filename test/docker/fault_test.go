package docker

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/pausetest"
)

// While dockerd does not run, containers run on (live-restore) and calls fail with Unavailable. Afterwards the shim
// reports the exits of that time, and each log has each line once.
func TestPodsRunOnWhileDockerdIsDown(t *testing.T) {
	n := start(t)
	for name, signal := range map[string]unix.Signal{"restart": unix.SIGTERM, "kill": unix.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			pod := n.pod(name)
			sandbox := n.run(t, pod)
			stays := workloadOf("stays", "print", "ready", "then", "sleep")
			id := n.launchContainer(t, sandbox, pod, stays, "ready")
			ends := workloadOf("ends", "print", "before", "then", "wait", "2s", "then", "print", "after", "then",
				"exit", "5")
			ending := n.launchContainer(t, sandbox, pod, ends, "before")
			before := n.container(t, id)

			n.restartDockerd(t, signal, func() {
				n.eventually(t, "lists fail with Unavailable", func() bool {
					_, err := n.Runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
					return status.Code(err) == codes.Unavailable
				})
			})
			if got := n.awaitExit(t, ending); got.ExitCode != 5 {
				t.Errorf("exit code %d of the container that has ended meanwhile", got.ExitCode)
			}
			if got := lines(t, pod, ends); !slices.Equal(got, []string{"before", "after"}) {
				t.Errorf("its log: %q", got)
			}
			after := n.container(t, id)
			if after.State != runtimeapi.ContainerState_CONTAINER_RUNNING || after.StartedAt != before.StartedAt {
				t.Errorf("the other container: %s, before: %s", after, before)
			}
			if got := n.sandboxOf(t, sandbox); got.State != runtimeapi.PodSandboxState_SANDBOX_READY {
				t.Errorf("the sandbox: %s", got)
			}
		})
	}
}

func (n *node) sandboxOf(t *testing.T, id string) *runtimeapi.PodSandboxStatus {
	t.Helper()
	r, err := n.Runtime.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		t.Fatal(err)
	}
	return r.Status
}

// ready returns the condition of the runtime.
func (n *node) ready(t *testing.T) *runtimeapi.RuntimeCondition {
	t.Helper()
	r, err := n.Runtime.Status(t.Context(), &runtimeapi.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Status.Conditions[0]
}

// A dockerd that hangs is not ready after the deadline of the check. Lists and statuses do not need it.
func TestListsAnswerWhileDockerdHangs(t *testing.T) {
	n := start(t)
	sandbox := n.run(t, n.pod("hang"))
	if got := n.ready(t); !got.Status {
		t.Fatalf("before: %s", got)
	}
	t.Cleanup(func() { _ = pausetest.Resume(n.daemon.Process()) }) // the removal of the pod needs it
	if err := pausetest.Pause(n.daemon.Process()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if got := n.ready(t); got.Status || got.Reason != "DockerNotReady" {
		t.Errorf("while it hangs: %s", got)
	}
	t.Logf("reported after %s", time.Since(began).Round(time.Millisecond))
	if got := n.sandboxOf(t, sandbox); got.State != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Errorf("the sandbox: %s", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := n.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: n.pod("late")})
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a pod meanwhile: %v", err)
	}
	if err := pausetest.Resume(n.daemon.Process()); err != nil {
		t.Fatal(err)
	}
	n.eventually(t, "it is ready again", func() bool { return n.ready(t).Status })
	n.run(t, n.pod("late")) // this works although dockerd may have made a part of the pod after the deadline
}

// The next shim continues after a shim that was killed at any step. A sandbox without a network is not ready, and a new
// one replaces it. A created container can be started.
func TestNextShimContinues(t *testing.T) {
	n := start(t)
	pod := n.pod("next")
	sandbox := n.run(t, pod)
	config := workloadOf("c", "print", "ready", "then", "sleep")
	created := n.create(t, sandbox, pod, config)
	n.stop()
	half := n.pod("half")
	n.halfMade(t, half)
	n.begin(t)

	if got := n.sandboxOf(t, sandbox); got.State != runtimeapi.PodSandboxState_SANDBOX_READY || got.Network.Ip == "" {
		t.Errorf("the sandbox: %s", got)
	}
	n.startContainer(t, created)
	n.awaitLine(t, pod, config, "ready")
	again := n.create(t, sandbox, pod, config)
	if again != created {
		t.Errorf("the same request made another container: %s, not %s", again, created)
	}
	if got := n.sandboxes(t, "half"); len(got) != 1 || got[0].State != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("the half-made sandbox: %s", got)
	}
	id := n.run(t, half)
	if got := n.sandboxes(t, "half"); len(got) != 1 || got[0].Id != id ||
		got[0].State != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Errorf("after the next try: %s", got)
	}
}

func (n *node) sandboxes(t *testing.T, app string) []*runtimeapi.PodSandbox {
	t.Helper()
	r, err := n.Runtime.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"app": app}}})
	if err != nil {
		t.Fatal(err)
	}
	return r.Items
}

// halfMade makes the pause container of a pod, as a shim leaves it that is killed before it makes the network.
func (n *node) halfMade(t *testing.T, pod *runtimeapi.PodSandboxConfig) {
	t.Helper()
	list, err := n.daemon.Client().ContainerList(t.Context(), client.ContainerListOptions{All: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list.Items {
		if c.Labels["io.kubernetes.docker.type"] != "podsandbox" {
			continue
		}
		model, err := n.daemon.Client().ContainerInspect(t.Context(), c.ID, client.ContainerInspectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		model.Container.Config.Labels["app"] = pod.Metadata.Name
		made, err := n.daemon.Client().ContainerCreate(t.Context(), client.ContainerCreateOptions{
			Name:   "k8s_POD_" + pod.Metadata.Name + "_" + pod.Metadata.Namespace + "_" + pod.Metadata.Uid + "_0",
			Config: model.Container.Config, HostConfig: model.Container.HostConfig})
		if err != nil {
			t.Fatal(err)
		}
		_, err = n.daemon.Client().ContainerStart(t.Context(), made.ID, client.ContainerStartOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatal("no sandbox to copy")
}
