package fake

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri"
)

// run starts a container of the workload in a new sandbox.
func run(t *testing.T, c *cri.Client, args ...string) (containerID string) {
	t.Helper()
	sandbox := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: t.Name(), Uid: "u",
		Namespace: "n"}}
	s, err := c.Runtime.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: sandbox})
	if err != nil {
		t.Fatal(err)
	}
	made, err := c.Runtime.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: s.PodSandboxId, SandboxConfig: sandbox,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "c"},
			Image:    &runtimeapi.ImageSpec{Image: Image}, Args: args,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Runtime.StartContainer(t.Context(),
		&runtimeapi.StartContainerRequest{ContainerId: made.ContainerId}); err != nil {
		t.Fatal(err)
	}
	return made.ContainerId
}

func statusOf(t *testing.T, c *cri.Client, id string) *runtimeapi.ContainerStatus {
	t.Helper()
	resp, err := c.Runtime.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		t.Fatal(err)
	}
	return resp.Status
}

func TestFakeKeepsTimeInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(t).Client(cri.Options{})
		id := run(t, c, "wait", "1h", "then", "exit", "3")
		time.Sleep(time.Hour - time.Second)
		synctest.Wait()
		if got := statusOf(t, c, id).State; got != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("before its hour is over: %s", got)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		got := statusOf(t, c, id)
		if got.State != runtimeapi.ContainerState_CONTAINER_EXITED || got.ExitCode != 3 || got.Reason != "Error" {
			t.Errorf("after it: %s", got)
		}
		if lived := time.Duration(got.FinishedAt - got.StartedAt); lived != time.Hour {
			t.Errorf("lived %s", lived)
		}
	})
}

func TestFakeFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(t)
		c := f.Client(cri.Options{Timeout: time.Minute})
		list := func() error {
			_, err := c.Runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
			return err
		}

		f.Inject(Fault{Method: "ListContainers", Times: 1, Err: errors.New("disk on fire")})
		if got, want := list().Error(), "ListContainers: disk on fire"; got != want {
			t.Errorf("error %q, want %q", got, want)
		}
		if err := list(); err != nil {
			t.Errorf("the fault outlived its one call: %v", err)
		}

		remove := f.Inject(Fault{Method: "ListContainers", Delay: time.Second})
		start := time.Now()
		if err := list(); err != nil || time.Since(start) != time.Second {
			t.Errorf("delayed call took %s: %v", time.Since(start), err)
		}
		remove()

		remove = f.Inject(Fault{Method: "ListContainers", Hang: true})
		if err := list(); !cri.IsHung(err) {
			t.Errorf("hanging call: %v", err)
		}
		remove()

		f.Inject(Fault{Method: "ImageStatus", Match: func(any) bool { return false }, Err: errors.New("no match")})
		if _, err := c.Images.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{}); err != nil {
			t.Errorf("a fault hit a request it does not match: %v", err)
		}

		var methods []string
		for _, call := range f.Calls() {
			methods = append(methods, call.Method)
		}
		want := []string{"ListContainers", "ListContainers", "ListContainers", "ListContainers", "ImageStatus"}
		if diff := cmp.Diff(want, methods); diff != "" {
			t.Error(diff)
		}
	})
}

func TestFakeDownKeepsContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(t)
		c := f.Client(cri.Options{})
		id := run(t, c, "sleep")
		events, err := c.Runtime.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		f.Down()
		if _, err := events.Recv(); !cri.IsUnavailable(err) {
			t.Errorf("event stream of a dead runtime: %v", err)
		}
		f.Exit(id, 0, "")
		f.Up()
		time.Sleep(2 * time.Second) // longer than the client waits before it dials again
		if got := statusOf(t, c, id).Reason; got != "Completed" {
			t.Errorf("reason %q", got)
		}
	})
}

func TestFakeDropsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(t)
		c := f.Client(cri.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		events, err := c.Runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		f.DropEvents()
		if _, err := events.Recv(); !cri.IsUnavailable(err) {
			t.Errorf("dropped stream: %v", err)
		}
		if _, err := c.Runtime.Version(ctx, &runtimeapi.VersionRequest{}); err != nil {
			t.Errorf("a call after the stream was dropped: %v", err)
		}
	})
}
