package nodeview

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/cluster/nodeobject"
	"github.com/berth-run/berth/internal/node"
	"github.com/berth-run/berth/internal/pod/podstatus"
)

// View of a node.
type View struct {
	// Object is nil without a cluster.
	Object *nodeobject.Object
	// Facts are of when the agent began, IPs the machine's addresses now.
	Facts node.Facts
	IPs   *node.Addresses
}

// Node is the Node object; nil before it was heard of. It is shared: do not change it.
func (v View) Node() *corev1.Node {
	if v.Object != nil {
		select {
		case <-v.Object.Received():
			return v.Object.Node()
		default:
		}
	}
	return nil
}

// Labels are the node's.
func (v View) Labels() map[string]string {
	if n := v.Node(); n != nil {
		return n.Labels
	}
	return v.Facts.Labels
}

// Addresses are the node's: a cloud's controller may know others than the machine.
func (v View) Addresses() []corev1.NodeAddress {
	if n := v.Node(); n != nil && len(n.Status.Addresses) > 0 {
		return n.Status.Addresses
	}
	return v.machine()
}

func (v View) machine() []corev1.NodeAddress {
	return node.Facts{Name: v.Facts.Name, IPs: v.IPs.IPs()}.Addresses()
}

// HostIPs are those of the addresses that pods are told of (podstatus.HostIPs).
func (v View) HostIPs() []string {
	if ips := podstatus.HostIPs(v.Addresses()); len(ips) > 0 {
		return ips
	}
	return podstatus.HostIPs(v.machine())
}
