package nodeview

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/cluster/nodeobject"
	"github.com/berth-run/berth/internal/node"
	"github.com/berth-run/berth/internal/pod/podstatus"
)

// View of a node.
type View struct {
	Latest *nodeobject.Latest
	// Facts are from the agent's start, IPs are the machine's current addresses.
	Facts node.Facts
	IPs   *node.Addresses
}

// Node returns the Node object, or nil before it was received. It is shared and must not be changed.
func (v View) Node() *corev1.Node { return v.Latest.Newest() }

// Labels returns the node's labels.
func (v View) Labels() map[string]string {
	if n := v.Node(); n != nil {
		return n.Labels
	}
	return v.Facts.Labels
}

// Addresses returns the node's addresses. A cloud controller may set others than the machine has.
func (v View) Addresses() []corev1.NodeAddress {
	if n := v.Node(); n != nil && len(n.Status.Addresses) > 0 {
		return n.Status.Addresses
	}
	return v.machine()
}

func (v View) machine() []corev1.NodeAddress {
	return node.Facts{Name: v.Facts.Name, IPs: v.IPs.IPs()}.Addresses()
}

// HostIPs returns the addresses for the status and the environment of pods (podstatus.HostIPs).
func (v View) HostIPs() []string {
	if ips := podstatus.HostIPs(v.Addresses()); len(ips) > 0 {
		return ips
	}
	return podstatus.HostIPs(v.machine())
}
