package network

import (
	"fmt"
	"math"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/quantity"
)

// args returns the arguments that identify the pod of a sandbox for plugins.
func args(id string, m *runtimeapi.PodSandboxMetadata) [][2]string {
	return [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", m.GetNamespace()}, {"K8S_POD_NAME", m.GetName()},
		{"K8S_POD_INFRA_CONTAINER_ID", id}, {"K8S_POD_UID", m.GetUid()},
	}
}

// capabilityArgs returns the arguments for the capabilities of plugins:
// https://github.com/containernetworking/cni/blob/spec-v1.1.0/CONVENTIONS.md
func capabilityArgs(config *runtimeapi.PodSandboxConfig, cidrs string) (map[string]any, error) {
	all := map[string]any{"io.kubernetes.cri.pod-annotations": config.GetAnnotations()}
	var ports []map[string]any
	for _, p := range config.GetPortMappings() {
		if p.GetHostPort() > 0 {
			ports = append(ports, map[string]any{"hostPort": p.GetHostPort(), "containerPort": p.GetContainerPort(),
				"protocol": strings.ToLower(p.GetProtocol().String()), "hostIP": p.GetHostIp()})
		}
	}
	if len(ports) > 0 {
		all["portMappings"] = ports
	}
	if dns := config.GetDnsConfig(); dns != nil {
		all["dns"] = map[string]any{"servers": dns.GetServers(), "searches": dns.GetSearches(),
			"options": dns.GetOptions()}
	}
	limits := map[string]any{}
	for annotation, direction := range map[string]string{
		"kubernetes.io/ingress-bandwidth": "ingress", "kubernetes.io/egress-bandwidth": "egress",
	} {
		text := config.GetAnnotations()[annotation]
		if text == "" {
			continue
		}
		rate, err := quantity.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("annotation %s=%q: %w", annotation, text, err)
		}
		limits[direction+"Rate"], limits[direction+"Burst"] = rate.Value(), math.MaxInt32
	}
	if len(limits) > 0 {
		all["bandwidth"] = limits
	}
	var ranges [][]map[string]any
	for cidr := range strings.SplitSeq(cidrs, ",") {
		if cidr = strings.TrimSpace(cidr); cidr != "" {
			ranges = append(ranges, []map[string]any{{"subnet": cidr}})
		}
	}
	if len(ranges) > 0 {
		all["ipRanges"] = ranges
	}
	return all, nil
}
