package pleg

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// The order is right even if the machine's clock is set back between two attempts.
func TestOrder(t *testing.T) {
	early, late := time.Unix(1000, 0), time.Unix(9000, 0)
	o := &pod.Observed{
		Sandboxes: []pod.SandboxStatus{{ID: "s0", CreatedAt: late}, {ID: "s1", Attempt: 1, CreatedAt: early}},
		Containers: []pod.ContainerStatus{{ID: "c0", CreatedAt: early}, {ID: "c1", RestartCount: 1, CreatedAt: late},
			{ID: "c2", RestartCount: 2, CreatedAt: early}, {ID: "b0", CreatedAt: late}},
	}
	order(o)
	var got []string
	for _, s := range o.Sandboxes {
		got = append(got, s.ID)
	}
	for _, c := range o.Containers {
		got = append(got, c.ID)
	}
	if diff := cmp.Diff([]string{"s1", "s0", "c2", "c1", "b0", "c0"}, got); diff != "" {
		t.Errorf("newest first (-want +got):\n%s", diff)
	}
}

func TestContainerWhoseCreationWasInterruptedHasNeverRun(t *testing.T) {
	const unknown, exited = runtimeapi.ContainerState_CONTAINER_UNKNOWN, runtimeapi.ContainerState_CONTAINER_EXITED
	for name, c := range map[string]struct {
		state   runtimeapi.ContainerState
		listed  int64 // when the list says that the container was created
		started int64
		want    pod.ContainerState
	}{
		"its creation was interrupted":              {state: unknown, want: pod.StateCreated},
		"it is being removed after that":            {state: exited, want: pod.StateCreated},
		"its creation was interrupted, but it runs": {state: unknown, started: 5, want: pod.StateUnknown},
		"nobody knows whether it has started":       {state: unknown, listed: 4, want: pod.StateUnknown},
		"nobody knows whether it has ended":         {state: unknown, listed: 4, started: 5, want: pod.StateUnknown},
		"it could not start":                        {state: exited, listed: 4, want: pod.StateExited},
	} {
		listed := &runtimeapi.Container{Id: "c", CreatedAt: c.listed, State: c.state}
		status := &runtimeapi.ContainerStatus{Id: "c", CreatedAt: 4, StartedAt: c.started, State: c.state}
		if got := containerStatus(listed, status).State; got != c.want {
			t.Errorf("%s: state %v, want %v", name, got, c.want)
		}
	}
}

func TestContainerWhoseStartWasAbandonedHasNeverRun(t *testing.T) {
	const created, exited = pod.StateCreated, pod.StateExited
	const create = "failed to create containerd task: "
	for message, want := range map[string]pod.ContainerState{
		create + "failed to create shim task: context canceled: unknown":         created,
		create + "failed to get task pid: context canceled":                      created,
		create + "failed to start shim: start failed: : signal: killed: unknown": created,
		create + "failed to create shim task: ttrpc: closed: unknown":            created,
		create + "failed to start shim: start failed: dial unix /run/containerd/s/a2: connect: no such file or " +
			"directory: unknown": created,
		create + "runc create failed: unable to create new parent process: namespace path: lstat /proc/7839/ns/ipc: " +
			"no such file or directory: unknown": created,
		`sandbox container "s" is not running`:                                                        created,
		"cannot join network of a non running container: s":                                           created,
		"cannot join network namespace of a non running container: container k8s_POD_web_1 is exited": created,
		`failed to start containerd task "c": context canceled: unknown`:                              exited,
		`failed to start containerd task "c": ttrpc: closed: unknown`:                                 exited,
		create + "failed to create shim task: context deadline exceeded: unknown":                     exited,
		create + "failed to create shim task: OCI runtime create failed: no such file":                exited,
		"": exited,
	} {
		listed := &runtimeapi.Container{Id: "c", CreatedAt: 4, State: runtimeapi.ContainerState_CONTAINER_EXITED}
		status := &runtimeapi.ContainerStatus{Id: "c", CreatedAt: 4, FinishedAt: 5, ExitCode: 128, State: listed.State,
			Reason: "StartError", Message: message}
		if got := containerStatus(listed, status).State; got != want {
			t.Errorf("%q: state %v, want %v", message, got, want)
		}
		status.StartedAt = 5
		if got := containerStatus(listed, status).State; got != exited {
			t.Errorf("%q of a container that has run: state %v, want %v", message, got, exited)
		}
	}
}
