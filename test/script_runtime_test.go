package test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/test/criproxy"
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

// awaitSandboxes waits until the runtime has some number of sandboxes of a pod.
func (h *harness) awaitSandboxes(ts *testscript.TestScript, args []string) {
	runtime, done := h.dial(ts)
	defer done()
	eventually(ts, func() (bool, any) {
		all, err := runtime.ListPodSandbox(context.Background(), &runtimeapi.ListPodSandboxRequest{
			Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{pod.LabelPodName: args[0]}},
		})
		if err != nil {
			return false, err
		}
		return strconv.Itoa(len(all.Items)) == args[1], all.Items
	})
}

// loseContainers removes a pod's containers from the runtime without the agent.
func (h *harness) loseContainers(ts *testscript.TestScript, args []string) {
	if d := ts.Value(daemonKey{}).(*daemon).docker; d != nil { // the shim is a part of the agent
		loseFromDocker(ts, d, args[0])
		return
	}
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

// secondSandbox makes one more sandbox of a pod with the runtime's own calls, as crictl would.
func (h *harness) secondSandbox(ts *testscript.TestScript, args []string) {
	runtime, done := h.dial(ts)
	defer done()
	ctx := context.Background()
	all, err := runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{pod.LabelPodName: args[0]}},
	})
	ts.Check(err)
	if len(all.Items) != 1 {
		ts.Fatalf("pod %s has %d sandboxes, want 1", args[0], len(all.Items))
	}
	first := all.Items[0]
	metadata := &runtimeapi.PodSandboxMetadata{Name: first.Metadata.Name, Namespace: first.Metadata.Namespace,
		Uid: first.Metadata.Uid, Attempt: first.Metadata.Attempt + 1}
	_, err = runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: metadata, Labels: first.Labels, Annotations: first.Annotations,
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/berth-test-" +
			strconv.Itoa(ts.Value(daemonKey{}).(*daemon).place)},
	}})
	ts.Check(err)
}

// faultyRuntime puts a proxy between the agent and the external runtime, and chooses its faults.
func (h *harness) faultyRuntime(ts *testscript.TestScript, args []string) {
	d := ts.Value(daemonKey{}).(*daemon)
	switch args[0] {
	case "start":
		socket := filepath.Join(d.runtime.Dir(), "faulty.sock")
		var err error
		d.proxy, err = criproxy.Start(context.Background(), socket, strings.TrimPrefix(d.runtime.Endpoint(), "unix://"))
		ts.Check(err)
		ts.Defer(func() { _ = d.proxy.Close() })
		changeEndpoint := func(from, to string) {
			path := ts.Getenv("CONFIG")
			config, err := os.ReadFile(path)
			ts.Check(err)
			ts.Check(os.WriteFile(path, bytes.ReplaceAll(config, []byte(from), []byte(to)), 0o644))
		}
		changeEndpoint(d.runtime.Endpoint(), "unix://"+socket)
		ts.Defer(func() { changeEndpoint("unix://"+socket, d.runtime.Endpoint()) }) // berth reset uses it at the end
	case "heal":
		d.proxy.Heal()
	case "await":
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		ts.Check(d.proxy.Await(ctx))
	default:
		n := -1
		if len(args) == 3 {
			var err error
			n, err = strconv.Atoi(args[2])
			ts.Check(err)
		}
		d.proxy.Set(args[0], criproxy.Fault(args[1]), n)
	}
}
