package join

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/record/event"
)

// Reasons of events of the node when its agent starts, as a kubelet spells them.
const (
	starting = "Starting"
	cgroupV1 = "CgroupV1"
)

// EventSource is who tells of events: a node of a cluster does as its kubelet.
func EventSource(c *config.Config) string {
	if c.Cluster != nil {
		return event.Kubelet
	}
	return event.Component
}

// announce tells the cluster that the agent of this node starts, and what of the
// machine is to be seen to.
func announce(events *event.Recorder, node, version string, unified bool) {
	ref := event.NodeRef(node)
	events.Event(ref, corev1.EventTypeNormal, starting, "Starting berth %s as the kubelet of this node.", version)
	if !unified {
		events.Event(ref, corev1.EventTypeWarning, cgroupV1,
			"The machine has cgroup v1, which Kubernetes has deprecated: boot it with "+
				"systemd.unified_cgroup_hierarchy=1 to have cgroup v2.")
	}
}
