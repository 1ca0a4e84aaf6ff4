package join

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/record/event"
)

// Reasons of events at the agent's start, as the kubelet spells them.
const (
	starting = "Starting"
	cgroupV1 = "CgroupV1"
)

// EventSource returns the component that events name as their source. In a cluster it is the kubelet.
func EventSource(c *config.Config) string {
	if c.Cluster != nil {
		return event.Kubelet
	}
	return event.Component
}

// announce records an event that this node's agent starts, and a warning if the machine still uses cgroup v1.
func announce(events *event.Recorder, node, version string, unified bool) {
	ref := event.NodeRef(node)
	events.Event(ref, corev1.EventTypeNormal, starting, "Starting berth %s as the kubelet of this node.", version)
	if !unified {
		events.Event(ref, corev1.EventTypeWarning, cgroupV1,
			"The machine has cgroup v1, which Kubernetes has deprecated: boot it with "+
				"systemd.unified_cgroup_hierarchy=1 to have cgroup v2.")
	}
}
