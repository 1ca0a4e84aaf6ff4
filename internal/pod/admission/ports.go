package admission

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// hostPort is a port of the host that a pod uses.
type hostPort struct {
	protocol corev1.Protocol
	ip       string // "" is every address
	port     int32
}

func (h hostPort) String() string {
	if h.ip == "" {
		return fmt.Sprintf("%d/%s", h.port, h.protocol)
	}
	return fmt.Sprintf("%s:%d/%s", h.ip, h.port, h.protocol)
}

func hostPorts(p *corev1.Pod) []hostPort {
	var ports []hostPort
	for _, port := range pod.HostPorts(p) {
		h := hostPort{protocol: port.Protocol, ip: port.HostIP, port: port.HostPort}
		if h.protocol == "" {
			h.protocol = corev1.ProtocolTCP
		}
		// A wildcard address of either family uses the port on all addresses: a socket that is bound to :: receives
		// IPv4 traffic too.
		if ip, err := netip.ParseAddr(port.HostIP); err == nil {
			if h.ip = ip.Unmap().String(); ip.Unmap().IsUnspecified() {
				h.ip = ""
			}
		}
		ports = append(ports, h)
	}
	return ports
}

func (h hostPort) conflicts(o hostPort) bool {
	return h.port == o.port && h.protocol == o.protocol && (h.ip == "" || o.ip == "" || h.ip == o.ip)
}

func checkHostPorts(in In) Answer {
	wanted := hostPorts(in.Pod)
	if len(wanted) == 0 {
		return Answer{}
	}
	var holders []PodInfo
	var held []string
	for o := range in.others() {
		for _, theirs := range hostPorts(o.Pod) {
			for _, h := range wanted {
				if !h.conflicts(theirs) {
					continue
				}
				if !o.Terminating {
					return reject(NodePorts,
						"Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports (%s "+
							"is used by pod %s)", h, pod.FullName(o.Pod))
				}
				held = append(held, h.String())
				if len(holders) == 0 || holders[len(holders)-1].Pod != o.Pod {
					holders = append(holders, o)
				}
			}
		}
	}
	if len(holders) > 0 {
		return notYet(NodePorts, holders, "host port %s", strings.Join(unique(held), ", "))
	}
	return Answer{}
}

// unique drops repetitions and keeps the order.
func unique(list []string) []string {
	var out []string
	seen := map[string]bool{}
	for _, s := range list {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}
