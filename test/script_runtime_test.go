package test

import (
	"context"
	"path/filepath"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// awaitRuntime waits until the script's runtime answers.
func (h *harness) awaitRuntime(ts *testscript.TestScript, _ []string) {
	runtime, done := h.dial(ts)
	defer done()
	eventually(ts, func() (bool, any) {
		_, err := runtime.Version(context.Background(), &runtimeapi.VersionRequest{})
		return err == nil, err
	})
}

// runPod makes a pod of one container with the runtime's own calls, as crictl would.
func (h *harness) runPod(ts *testscript.TestScript, args []string) {
	runtime, done := h.dial(ts)
	defer done()
	ctx, name := context.Background(), args[0]
	root := rootOf(ts)
	labels := map[string]string{pod.LabelPodName: name, pod.LabelPodNamespace: "default", pod.LabelPodUID: name,
		pod.LabelContainerName: "app"}
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name},
		Labels:       labels,
		LogDirectory: filepath.Join(root, "logs", name),
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/berth-test-" +
			strconv.Itoa(ts.Value(daemonKey{}).(*daemon).place)},
	}
	box, err := runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	ts.Check(err)
	created, err := runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: box.PodSandboxId, SandboxConfig: config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, Labels: labels, LogPath: "app.log",
			Image: &runtimeapi.ImageSpec{Image: ts.Getenv("IMAGE")}, Args: []string{"sleep"},
		},
	})
	ts.Check(err)
	_, err = runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: created.ContainerId})
	ts.Check(err)
}

// loseContainers removes a pod's containers from the runtime without the agent.
func (h *harness) loseContainers(ts *testscript.TestScript, args []string) {
	runtime, done := h.dial(ts)
	defer done()
	ctx := context.Background()
	all, err := runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{LabelSelector: map[string]string{pod.LabelPodName: args[0]}},
	})
	ts.Check(err)
	for _, c := range all.Containers {
		_, err := runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c.Id})
		ts.Check(err)
	}
}
