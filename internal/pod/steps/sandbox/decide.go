package sandbox

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/quantity"
	"github.com/berth-run/berth/internal/base/sysctl"
	"github.com/berth-run/berth/internal/model/pod"
)

// Given is the input of Render besides the pod.
type Given struct {
	Attempt      uint32
	Hostname     string
	LogDir       string
	CgroupParent string
	DNS          *runtimeapi.DNSConfig
	// Resources is the limit of all containers together, Overhead the usage of the sandbox itself (KEP-688). A runtime
	// that starts a virtual machine for a pod makes it large enough for both.
	Resources, Overhead *runtimeapi.LinuxContainerResources
	// Userns is the pod's own user namespace. nil means the host's.
	Userns *runtimeapi.UserNamespace
}

// Render makes the CRI configuration of a pod's sandbox. The same pod always gives the same configuration, because it
// is rendered again for a sandbox that was found after a restart.
func Render(p *corev1.Pod, g Given) (*runtimeapi.PodSandboxConfig, error) {
	labels := maps.Clone(p.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[pod.LabelPodName] = p.Name
	labels[pod.LabelPodNamespace] = p.Namespace
	labels[pod.LabelPodUID] = string(p.UID)
	ports, err := portMappings(p)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: string(p.UID),
			Attempt: g.Attempt},
		Hostname:     g.Hostname,
		LogDirectory: g.LogDir,
		DnsConfig:    g.DNS,
		PortMappings: ports,
		Labels:       labels,
		Annotations:  maps.Clone(p.Annotations),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent:    g.CgroupParent,
			SecurityContext: securityContext(p, g.Userns),
			Sysctls:         sysctls(p),
			Overhead:        g.Overhead,
			Resources:       g.Resources,
		},
	}, nil
}

// checkBandwidth refuses an annotation that a runtime would need minutes to read. The runtime finds other faults.
func checkBandwidth(p *corev1.Pod) error {
	for _, name := range []string{"kubernetes.io/ingress-bandwidth", "kubernetes.io/egress-bandwidth"} {
		if err := quantity.Check(p.Annotations[name]); err != nil {
			return fmt.Errorf("annotation %s=%q: %w", name, p.Annotations[name], err)
		}
	}
	return nil
}

// portMappings returns the host ports. On the host network every port is the host's already.
func portMappings(p *corev1.Pod) ([]*runtimeapi.PortMapping, error) {
	if pod.HostNetwork(p) {
		return nil, nil
	}
	var mappings []*runtimeapi.PortMapping
	for _, port := range pod.HostPorts(p) {
		protocol, ok := runtimeapi.Protocol_value[strings.ToUpper(string(port.Protocol))]
		if !ok {
			return nil,
				fmt.Errorf("map host port %d: protocol %q is not TCP, UDP or SCTP", port.HostPort, port.Protocol)
		}
		mappings = append(mappings, &runtimeapi.PortMapping{
			Protocol: runtimeapi.Protocol(protocol), ContainerPort: port.ContainerPort, HostPort: port.HostPort,
			HostIp: port.HostIP,
		})
	}
	return mappings, nil
}

func sysctls(p *corev1.Pod) map[string]string {
	if p.Spec.SecurityContext == nil || len(p.Spec.SecurityContext.Sysctls) == 0 {
		return nil
	}
	s := map[string]string{}
	for _, c := range p.Spec.SecurityContext.Sysctls {
		s[sysctl.Name(c.Name)] = c.Value
	}
	return s
}

func securityContext(p *corev1.Pod, userns *runtimeapi.UserNamespace) *runtimeapi.LinuxSandboxSecurityContext {
	sc := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces(p, userns),
		Privileged:       pod.Privileged(p),
		// The sandbox runs no user code, so it always has the runtime's profile.
		Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}
	in := p.Spec.SecurityContext
	if in == nil {
		return sc
	}
	if in.RunAsUser != nil {
		sc.RunAsUser = &runtimeapi.Int64Value{Value: *in.RunAsUser}
	}
	if in.RunAsGroup != nil {
		sc.RunAsGroup = &runtimeapi.Int64Value{Value: *in.RunAsGroup}
	}
	if in.FSGroup != nil {
		sc.SupplementalGroups = append(sc.SupplementalGroups, *in.FSGroup)
	}
	sc.SupplementalGroups = append(sc.SupplementalGroups, in.SupplementalGroups...)
	if in.SupplementalGroupsPolicy != nil && *in.SupplementalGroupsPolicy == corev1.SupplementalGroupsPolicyStrict {
		sc.SupplementalGroupsPolicy = runtimeapi.SupplementalGroupsPolicy_Strict
	}
	if se := in.SELinuxOptions; se != nil {
		sc.SelinuxOptions = &runtimeapi.SELinuxOption{User: se.User, Role: se.Role, Type: se.Type, Level: se.Level}
	}
	return sc
}

// namespaces returns the namespace modes of a pod.
func namespaces(p *corev1.Pod, userns *runtimeapi.UserNamespace) *runtimeapi.NamespaceOption {
	o := &runtimeapi.NamespaceOption{
		Network: runtimeapi.NamespaceMode_POD, Ipc: runtimeapi.NamespaceMode_POD,
		Pid:           runtimeapi.NamespaceMode_CONTAINER,
		UsernsOptions: userns,
	}
	if p.Spec.HostNetwork {
		o.Network = runtimeapi.NamespaceMode_NODE
	}
	if p.Spec.HostIPC {
		o.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case p.Spec.HostPID:
		o.Pid = runtimeapi.NamespaceMode_NODE
	case p.Spec.ShareProcessNamespace != nil && *p.Spec.ShareProcessNamespace:
		o.Pid = runtimeapi.NamespaceMode_POD
	}
	return o
}
