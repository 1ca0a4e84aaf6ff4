package sandbox

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var given = Given{
	Attempt: 2, Hostname: "web", LogDir: "/var/log/pods/default_web_u", CgroupParent: "/kubepods/podu",
	DNS:       &runtimeapi.DNSConfig{Servers: []string{"10.0.0.53"}},
	Resources: &runtimeapi.LinuxContainerResources{CpuShares: 256},
	Overhead:  &runtimeapi.LinuxContainerResources{CpuShares: 102},
	Userns: &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD,
		Uids: []*runtimeapi.IDMapping{{HostId: 65536, Length: 65536}}},
}

func TestRender(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u",
		Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"note": "x"}}}
	p.Spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsUser: new(int64(1000)), RunAsGroup: new(int64(100)), FSGroup: new(int64(7)),
		SupplementalGroups:       []int64{8, 9},
		SupplementalGroupsPolicy: new(corev1.SupplementalGroupsPolicyStrict),
		SELinuxOptions:           &corev1.SELinuxOptions{Level: "s0:c1"},
		Sysctls: []corev1.Sysctl{{Name: "net/ipv4/ping_group_range", Value: "0 1"},
			{Name: "net/ipv4/conf/eth0.7/forwarding", Value: "1"}, {Name: "net.core.somaxconn", Value: "9"}},
	}
	p.Spec.ShareProcessNamespace = new(true)
	p.Spec.InitContainers = []corev1.Container{
		{Name: "i",
			Ports: []corev1.ContainerPort{{ContainerPort: 2, HostPort: 12,
				Protocol: "UDP"}}}, // an init container ends before the pod is up
		{Name: "s", RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
			Ports: []corev1.ContainerPort{{ContainerPort: 1, HostPort: 11, Protocol: "UDP"}}},
	}
	p.Spec.Containers = []corev1.Container{{Name: "a", SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
		Ports: []corev1.ContainerPort{{ContainerPort: 80, Protocol: "TCP"},
			{ContainerPort: 81, HostPort: 8081, HostIP: "127.0.0.1", Protocol: "TCP"}}}}

	want := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u", Attempt: 2},
		Hostname: "web", LogDirectory: given.LogDir, DnsConfig: given.DNS,
		PortMappings: []*runtimeapi.PortMapping{
			{Protocol: runtimeapi.Protocol_UDP, ContainerPort: 1, HostPort: 11},
			{Protocol: runtimeapi.Protocol_TCP, ContainerPort: 81, HostPort: 8081, HostIp: "127.0.0.1"},
		},
		Labels: map[string]string{"app": "web", "io.kubernetes.pod.name": "web",
			"io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": "u"},
		Annotations: map[string]string{"note": "x"},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: "/kubepods/podu",
			Sysctls: map[string]string{"net.ipv4.ping_group_range": "0 1", "net.ipv4.conf.eth0/7.forwarding": "1",
				"net.core.somaxconn": "9"},
			Resources: given.Resources, Overhead: given.Overhead,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_POD,
					UsernsOptions: given.Userns},
				Privileged:               true,
				RunAsUser:                &runtimeapi.Int64Value{Value: 1000},
				RunAsGroup:               &runtimeapi.Int64Value{Value: 100},
				SupplementalGroups:       []int64{7, 8, 9},
				SupplementalGroupsPolicy: runtimeapi.SupplementalGroupsPolicy_Strict,
				SelinuxOptions:           &runtimeapi.SELinuxOption{Level: "s0:c1"},
				Seccomp: &runtimeapi.SecurityProfile{
					ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			},
		},
	}
	got, err := Render(p, given)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

func TestNamespaces(t *testing.T) {
	for name, c := range map[string]struct {
		spec corev1.PodSpec
		want *runtimeapi.NamespaceOption
	}{
		"a pod's own": {corev1.PodSpec{}, &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}},
		"the host's": {corev1.PodSpec{HostNetwork: true, HostIPC: true, HostPID: true},
			&runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE, Ipc: runtimeapi.NamespaceMode_NODE,
				Pid: runtimeapi.NamespaceMode_NODE}},
		"shared processes": {corev1.PodSpec{ShareProcessNamespace: new(true)},
			&runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_POD}},
		"not shared either": {corev1.PodSpec{ShareProcessNamespace: new(false)},
			&runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}},
	} {
		if diff := cmp.Diff(c.want, namespaces(&corev1.Pod{Spec: c.spec}, nil), protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestHostNetworkMapsNoPorts(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{HostNetwork: true,
		Containers: []corev1.Container{
			{Ports: []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80, Protocol: "TCP"}}}}}}
	got, err := Render(p, given)
	if err != nil || got.PortMappings != nil {
		t.Errorf("Render = %v, %v; want no port mappings", got.PortMappings, err)
	}
}

func TestUnknownProtocol(t *testing.T) {
	p := &corev1.Pod{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a",
			Ports: []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80, Protocol: "QUIC"}}}}}}
	_, err := Render(p, given)
	want := `map host port 80: protocol "QUIC" is not TCP, UDP or SCTP`
	if err == nil || err.Error() != want {
		t.Errorf("Render: %v, want %s", err, want)
	}
}
