package sandbox

import (
	"net/netip"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/docker/dockershim/index"
)

// host is Docker's name of a namespace of the machine.
const host = "host"

// cleanUp is how long the removal of a sandbox that did not start may take.
const cleanUp = time.Minute

func stateOf(ready bool) runtimeapi.PodSandboxState {
	if ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

// statusOf converts the record of a sandbox.
func statusOf(c *index.Record, ready bool, addresses []netip.Addr) *runtimeapi.PodSandboxStatus {
	network := &runtimeapi.PodSandboxNetworkStatus{}
	for i, a := range addresses {
		if i == 0 {
			network.Ip = a.String()
			continue
		}
		network.AdditionalIps = append(network.AdditionalIps, &runtimeapi.PodIP{Ip: a.String()})
	}
	mode := func(host bool, own runtimeapi.NamespaceMode) runtimeapi.NamespaceMode {
		if host {
			return runtimeapi.NamespaceMode_NODE
		}
		return own
	}
	return &runtimeapi.PodSandboxStatus{
		Id: c.ID, Metadata: c.Pod, State: stateOf(ready), CreatedAt: c.Times.Created, Network: network,
		Labels: c.Labels, Annotations: c.Annotations, RuntimeHandler: handlerOf(c),
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{
			Network: mode(c.HostNetwork(), runtimeapi.NamespaceMode_POD),
			Pid:     mode(c.Host.PidMode.IsHost(), runtimeapi.NamespaceMode_CONTAINER),
			Ipc:     mode(c.Host.IpcMode.IsHost(), runtimeapi.NamespaceMode_POD),
		}}},
	}
}

// handlerOf returns the runtime handler of a sandbox. Docker writes the name of its default runtime into containers.
func handlerOf(c *index.Record) string {
	if c.Host.Runtime == "runc" || c.Host.Runtime == "io.containerd.runc.v2" {
		return ""
	}
	return c.Host.Runtime
}

// itemOf converts the record of a sandbox for a list.
func itemOf(c *index.Record, ready bool) *runtimeapi.PodSandbox {
	return &runtimeapi.PodSandbox{Id: c.ID, Metadata: c.Pod, State: stateOf(ready), CreatedAt: c.Times.Created,
		Labels: c.Labels, Annotations: c.Annotations, RuntimeHandler: handlerOf(c)}
}

// matches reports whether a filter lets a sandbox through.
func matches(p *runtimeapi.PodSandbox, f *runtimeapi.PodSandboxFilter) bool {
	if f.GetId() != "" && f.GetId() != p.Id || f.GetState() != nil && f.GetState().GetState() != p.State {
		return false
	}
	for key, value := range f.GetLabelSelector() {
		if own, ok := p.Labels[key]; !ok || own != value {
			return false
		}
	}
	return true
}

// resolvConf returns the text of a pod's resolv.conf. Its lines have containerd's order.
func resolvConf(dns *runtimeapi.DNSConfig) string {
	var text strings.Builder
	if len(dns.GetSearches()) > 0 {
		text.WriteString("search " + strings.Join(dns.GetSearches(), " ") + "\n")
	}
	for _, server := range dns.GetServers() {
		text.WriteString("nameserver " + server + "\n")
	}
	if len(dns.GetOptions()) > 0 {
		text.WriteString("options " + strings.Join(dns.GetOptions(), " ") + "\n")
	}
	return text.String()
}
