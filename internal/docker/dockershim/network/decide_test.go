package network

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestCapabilityArgsHavePortsRangesAndBandwidth(t *testing.T) {
	annotations := map[string]string{"kubernetes.io/egress-bandwidth": "1M"}
	got, err := capabilityArgs(&runtimeapi.PodSandboxConfig{
		Annotations: annotations,
		PortMappings: []*runtimeapi.PortMapping{{ContainerPort: 80, HostPort: 8080, Protocol: runtimeapi.Protocol_UDP},
			{ContainerPort: 81}},
	}, "10.1.0.0/24,fd00::/64")
	want := map[string]any{
		"io.kubernetes.cri.pod-annotations": annotations,
		"portMappings": []map[string]any{{"hostPort": int32(8080), "containerPort": int32(80), "protocol": "udp",
			"hostIP": ""}},
		"bandwidth": map[string]any{"egressRate": int64(1_000_000), "egressBurst": 1<<31 - 1},
		"ipRanges":  [][]map[string]any{{{"subnet": "10.1.0.0/24"}}, {{"subnet": "fd00::/64"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	if _, err := capabilityArgs(&runtimeapi.PodSandboxConfig{
		Annotations: map[string]string{"kubernetes.io/egress-bandwidth": "fast"}}, ""); err == nil {
		t.Error("a bandwidth that is no number is accepted")
	}
}
