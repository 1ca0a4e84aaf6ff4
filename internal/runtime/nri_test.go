package runtime_test

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/google/go-cmp/cmp"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/unixsocket"
)

// sample is an NRI plugin. It notes the calls about one pod and sets a variable in its containers.
type sample struct {
	pod   string
	mu    sync.Mutex
	seen  []string
	known *api.PodSandbox // as RunPodSandbox showed it
}

func (s *sample) note(pod *api.PodSandbox, what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pod.GetName() != s.pod {
		return false
	}
	s.seen = append(s.seen, what)
	return true
}

func (s *sample) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	if s.note(pod, "run pod") {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.known = pod
	}
	return nil
}

func (s *sample) StopPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	s.note(pod, "stop pod")
	return nil
}

func (s *sample) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	s.note(pod, "remove pod")
	return nil
}

func (s *sample) CreateContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment,
	[]*api.ContainerUpdate, error) {
	if !s.note(pod, "create "+c.GetName()) {
		return nil, nil, nil
	}
	change := &api.ContainerAdjustment{}
	change.AddEnv("ADDED", "by the plugin")
	change.SetLinuxCPUShares(333)
	return change, nil, nil
}

func (s *sample) StartContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) error {
	s.note(pod, "start "+c.GetName())
	return nil
}

func (s *sample) StopContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate,
	error) {
	s.note(pod, "stop "+specified(c))
	return nil, nil
}

func (s *sample) RemoveContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) error {
	s.note(pod, "remove "+specified(c))
	return nil
}

// specified returns the name of a container, and says so if its specification is not whole (package briefspec).
func specified(c *api.Container) string {
	if len(c.GetArgs()) == 0 || len(c.GetEnv()) == 0 {
		return c.GetName() + " without its specification"
	}
	return c.GetName()
}

// The runtime calls a connected plugin at each step of pods and containers, and the plugin may change containers. Its
// socket is the runtime's own one, because another program listens on the configured one. See
// https://github.com/containerd/nri.
func testNRI(t *testing.T, c *client, dir string) {
	s := &sample{pod: "nri"}
	plugin, err := stub.New(s, stub.WithPluginName("sample"), stub.WithPluginIdx("10"),
		stub.WithSocketPath(filepath.Join(unixsocket.Dir(testConfig(dir).Root), "nri.sock")))
	if err != nil {
		t.Fatal(err)
	}
	if err := plugin.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer plugin.Stop()

	id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("nri"), Labels: map[string]string{"a": "b"}})
	app := c.container(t, id, pod, "app", "sleep")
	out, err := c.ExecSync(t.Context(),
		&cri.ExecSyncRequest{ContainerId: app, Cmd: []string{"/workload", "env", "ADDED"}})
	if err != nil || string(out.GetStdout()) != "by the plugin\n" {
		t.Errorf("the variable of the plugin is %q, %v", out.GetStdout(), err)
	}
	if _, err := c.StopContainer(t.Context(), &cri.StopContainerRequest{ContainerId: app}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.StopPodSandbox(t.Context(), &cri.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RemovePodSandbox(t.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	want := []string{"run pod", "create app", "start app", "stop app", "stop pod", "remove app", "remove pod"}
	if diff := cmp.Diff(want, s.seen); diff != "" {
		t.Errorf("what the plugin saw (-want +got):\n%s", diff)
	}
	if s.known.GetUid() != pod.Metadata.Uid || s.known.GetLabels()["a"] != "b" || s.known.GetPid() == 0 ||
		s.known.GetLinux().GetCgroupParent() != pod.Linux.CgroupParent ||
		!slices.ContainsFunc(s.known.GetLinux().GetNamespaces(), func(n *api.LinuxNamespace) bool {
			return n.Type == "network"
		}) {
		t.Errorf("the plugin saw the pod as %v", s.known)
	}
}
