package sandbox

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/moby/api/types/container"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/docker/dockershim/identity"
	"github.com/berth-run/berth/internal/docker/dockershim/index"
)

func TestStatusOfASandbox(t *testing.T) {
	c := &index.Record{ID: "i", Identity: identity.Identity{Sandbox: true, Labels: map[string]string{"a": "b"},
		Pod: &runtimeapi.PodSandboxMetadata{Name: "p"}},
		Host:  &container.HostConfig{NetworkMode: "none", PidMode: "host", Runtime: "runc"},
		Times: index.Times{Created: 5}}
	got := statusOf(c, true, []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")})
	want := &runtimeapi.PodSandboxStatus{Id: "i", Metadata: c.Pod, CreatedAt: 5, Labels: c.Labels,
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.2",
			AdditionalIps: []*runtimeapi.PodIP{{Ip: "fd00::2"}}},
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{
			Pid: runtimeapi.NamespaceMode_NODE}}}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestFiltersSelectSandboxes(t *testing.T) {
	p := &runtimeapi.PodSandbox{Id: "i", Labels: map[string]string{"a": ""}}
	for _, test := range []struct {
		filter *runtimeapi.PodSandboxFilter
		want   bool
	}{
		{nil, true}, {&runtimeapi.PodSandboxFilter{Id: "i"}, true}, {&runtimeapi.PodSandboxFilter{Id: "j"}, false},
		{&runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"a": ""}}, true},
		{&runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"b": ""}}, false},
		{&runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{
			State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY}}, false},
	} {
		if got := matches(p, test.filter); got != test.want {
			t.Errorf("%v: %v", test.filter, got)
		}
	}
}

func TestResolvConfHasContainerdsOrder(t *testing.T) {
	got := resolvConf(&runtimeapi.DNSConfig{Servers: []string{"192.0.2.1", "192.0.2.2"}, Searches: []string{"a", "b"},
		Options: []string{"ndots:5"}})
	if want := "search a b\nnameserver 192.0.2.1\nnameserver 192.0.2.2\noptions ndots:5\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
