package critest

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri"
)

// unusualLabels have the features of real pods' labels and annotations that a runtime could get wrong: prefixes, JSON,
// empty values.
func unusualLabels() map[string]string {
	return map[string]string{
		"io.kubernetes.pod.name":                   "web-0",
		"app.kubernetes.io/Managed_by.v1":          "berth",
		"empty":                                    "",
		"kubernetes.io/config.seen":                "2026-01-01T00:00:00.000000001Z",
		"kubectl.kubernetes.io/last-applied-state": "{\"a\": [1, \"ü\"]}\n",
	}
}

func testVersion(t *testing.T, env Env) {
	v, err := env.Client.Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if v.RuntimeApiVersion != "v1" {
		t.Errorf("CRI version %q", v.RuntimeApiVersion)
	}
	resp, err := env.Client.Runtime.Status(t.Context(), &runtimeapi.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range resp.Status.Conditions {
		if !c.Status && (c.Type == runtimeapi.RuntimeReady || c.Type == runtimeapi.NetworkReady) {
			t.Errorf("not ready: %s", c)
		}
	}
}

func (e Env) sandboxes(t *testing.T, filter *runtimeapi.PodSandboxFilter) []*runtimeapi.PodSandbox {
	t.Helper()
	resp, err := e.Client.Runtime.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{Filter: filter})
	if err != nil {
		t.Fatal(err)
	}
	return resp.Items
}

func testSandboxLifecycle(t *testing.T, env Env) {
	p := env.runPod(t, "life", func(c *runtimeapi.PodSandboxConfig) {
		maps.Copy(c.Labels, unusualLabels())
		c.Annotations = unusualLabels()
	})

	status := p.status(t)
	if status.State != runtimeapi.PodSandboxState_SANDBOX_READY || status.CreatedAt == 0 {
		t.Errorf("after its start: %s", status)
	}
	checkIdentity(t, status, p.config, status.Metadata, p.config.Metadata)
	if _, err := netip.ParseAddr(status.Network.GetIp()); err != nil {
		t.Errorf("pod address: %v", err)
	}
	want := []*runtimeapi.PodSandbox{{
		Id: p.id, Metadata: p.config.Metadata, State: runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt: status.CreatedAt, Labels: p.config.Labels, Annotations: p.config.Annotations,
	}}
	listed := env.sandboxes(t,
		&runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"test": p.config.Labels["test"]}})
	if diff := cmp.Diff(want, listed, protocmp.Transform(),
		protocmp.IgnoreFields(&runtimeapi.PodSandbox{}, "runtime_handler")); diff != "" {
		t.Errorf("list: %s", diff)
	}

	for range 2 { // StopPodSandbox and RemovePodSandbox are idempotent
		p.stop(t)
		if got := p.status(t).State; got != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
			t.Errorf("after its stop: %s", got)
		}
	}
	for range 2 {
		p.remove(t)
		_, err := env.Client.Runtime.PodSandboxStatus(t.Context(),
			&runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id})
		if !cri.IsNotFound(err) {
			t.Errorf("status after its removal: %v", err)
		}
	}
}

func testSandboxAttempts(t *testing.T, env Env) {
	first := env.runPod(t, "again")
	first.stop(t)
	second := env.runPod(t, "again", func(c *runtimeapi.PodSandboxConfig) { c.Metadata.Attempt = 1 })
	got := map[uint32]runtimeapi.PodSandboxState{}
	for _, s := range env.sandboxes(t, &runtimeapi.PodSandboxFilter{LabelSelector: second.config.Labels}) {
		got[s.Metadata.Attempt] = s.State
	}
	want := map[uint32]runtimeapi.PodSandboxState{
		0: runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
		1: runtimeapi.PodSandboxState_SANDBOX_READY,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// An agent that did not receive the answer of RunPodSandbox calls it again. The runtime must not create a second
// sandbox of the same attempt.
func testSandboxNameIsTakenOnce(t *testing.T, env Env) {
	p := env.runPod(t, "once")
	resp, err := env.Client.Runtime.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: p.config})
	if err == nil && resp.PodSandboxId != p.id {
		t.Errorf("a second sandbox of the same name: %s", resp.PodSandboxId)
	}
	if listed := env.sandboxes(t, &runtimeapi.PodSandboxFilter{LabelSelector: p.config.Labels}); len(listed) != 1 {
		t.Errorf("%d sandboxes", len(listed))
	}
}

func testSandboxFilters(t *testing.T, env Env) {
	a := env.runPod(t, "a", func(c *runtimeapi.PodSandboxConfig) { c.Labels["tier"] = "filter" })
	b := env.runPod(t, "b", func(c *runtimeapi.PodSandboxConfig) { c.Labels["tier"] = "filter" })
	b.stop(t)
	tier := map[string]string{"tier": "filter"}
	ready := &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}
	for _, test := range []struct {
		name   string
		filter *runtimeapi.PodSandboxFilter
		want   []string
	}{
		{"label", &runtimeapi.PodSandboxFilter{LabelSelector: tier}, []string{a.id, b.id}},
		{"two labels",
			&runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"tier": "filter",
				"test": b.config.Labels["test"]}}, []string{b.id}},
		{"label of no sandbox", &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"tier": "other"}}, nil},
		{"id", &runtimeapi.PodSandboxFilter{Id: a.id}, []string{a.id}},
		{"unknown id", &runtimeapi.PodSandboxFilter{Id: "0123456789abcdef"}, nil},
		{"state", &runtimeapi.PodSandboxFilter{LabelSelector: tier, State: ready}, []string{a.id}},
		{"id and state", &runtimeapi.PodSandboxFilter{Id: b.id, State: ready}, nil},
	} {
		var got []string
		for _, s := range env.sandboxes(t, test.filter) {
			got = append(got, s.Id)
		}
		checkListed(t, test.name, got, test.want)
	}
}

func testSandboxUnknown(t *testing.T, env Env) {
	const id = "0123456789abcdef"
	_, err := env.Client.Runtime.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if !cri.IsNotFound(err) {
		t.Errorf("status: %v", err)
	}
	// CRI requires success for an unknown sandbox; older runtimes return NotFound.
	_, err = env.Client.Runtime.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	if err != nil && !cri.IsNotFound(err) {
		t.Errorf("stop: %v", err)
	}
	if _, err = env.Client.Runtime.RemovePodSandbox(t.Context(),
		&runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
		t.Errorf("remove: %v", err)
	}
	config := env.podConfig(t, "none")
	p := &pod{Env: env, id: id, config: config}
	if _, err := p.tryCreate(t, p.containerConfig("c")); err == nil {
		t.Error("a container was created in a sandbox that does not exist")
	}
}

func testSandboxHostNetwork(t *testing.T, env Env) {
	p := env.runPod(t, "host", func(c *runtimeapi.PodSandboxConfig) {
		c.Hostname = ""
		c.Linux.SecurityContext = &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
		}
	})
	status := p.status(t)
	if ip := status.Network.GetIp(); ip != "" {
		t.Errorf("address %s of a pod in the host's network", ip)
	}
	if got := status.Linux.GetNamespaces().GetOptions().GetNetwork(); got != runtimeapi.NamespaceMode_NODE {
		t.Errorf("network namespace mode %s", got)
	}
}

func testSandboxStopEndsContainers(t *testing.T, env Env) {
	p := env.runPod(t, "ends")
	id := p.runStubborn(t, "c")
	p.stop(t)
	if got := env.exited(t, id); got.ExitCode != killed {
		t.Errorf("exit code %d", got.ExitCode)
	}
}

// A container with a PID namespace of its own does not end with the sandbox's first process. The runtime must end it.
func testSandboxStopEndsContainersOfOwnPID(t *testing.T, env Env) {
	p := env.runPod(t, "ownpid")
	config := p.containerConfig("c", "print", "ready", "then", "sleep")
	config.Linux.SecurityContext.NamespaceOptions = &runtimeapi.NamespaceOption{
		Pid: runtimeapi.NamespaceMode_CONTAINER}
	id := p.run(t, config)
	p.awaitLine(t, config, "ready")
	p.stop(t)
	if got := env.exited(t, id); got.ExitCode != killed {
		t.Errorf("exit code %d", got.ExitCode)
	}
}

func testSandboxRemoveRemovesContainers(t *testing.T, env Env) {
	p := env.runPod(t, "goes")
	id := p.runStubborn(t, "c")
	p.stop(t)
	p.remove(t)
	_, err := env.Client.Runtime.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if !cri.IsNotFound(err) {
		t.Errorf("container after the removal of its sandbox: %v", err)
	}
}
