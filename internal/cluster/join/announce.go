package join

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/record/event"
)

// Reasons of events at the agent's start, as the kubelet spells them.
const (
	starting      = "Starting"
	cgroupV1      = "CgroupV1"
	memoryOnDisk  = "PossibleMemoryBackedVolumesOnDisk"
	resolvConfBig = "CheckLimitsForResolvConf"
)

// EventSource returns the component that events name as their source. In a cluster it is the kubelet.
func EventSource(c *config.Config) string {
	if c.Cluster != nil {
		return event.Kubelet
	}
	return event.Component
}

// found are the properties of the machine that the agent warns of when it starts.
type found struct {
	unified bool // it has cgroup v2
	swap    bool // it has swap
	noSwap  bool // a tmpfs can be kept out of the swap
	// resolvConf says why pods cannot get all of the host's DNS configuration. Empty: they can.
	resolvConf string
}

// announce records an event that this node's agent starts, and warnings about the machine.
func announce(events *event.Recorder, node, version string, f found) {
	ref := event.NodeRef(node)
	events.Event(ref, corev1.EventTypeNormal, starting, "Starting berth %s as the kubelet of this node.", version)
	if !f.unified {
		events.Event(ref, corev1.EventTypeWarning, cgroupV1,
			"The machine has cgroup v1, which Kubernetes has deprecated: boot it with "+
				"systemd.unified_cgroup_hierarchy=1 to have cgroup v2.")
	}
	if f.swap && !f.noSwap {
		events.Event(ref, corev1.EventTypeWarning, memoryOnDisk,
			"The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) might be "+
				"swapped to disk and should no longer be considered secure.")
	}
	if f.resolvConf != "" {
		events.Event(ref, corev1.EventTypeWarning, resolvConfBig, "%s", f.resolvConf)
	}
}
