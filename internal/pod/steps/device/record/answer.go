package record

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// Answer is a plugin's answer to Allocate for one container and resource.
type Answer struct {
	// Nodes holds the NUMA nodes of each allocated device, by device id.
	Nodes map[device.ID]topology.Nodes `json:"nodes"`
	// Boot is the kernel's boot id when the plugin answered. After a reboot the answer is void and the plugin must
	// allocate again.
	Boot string `json:"boot"`
	// PreStart is set if PreStartContainer must be called before each start of the container.
	PreStart    bool              `json:"preStart,omitempty"`
	Envs        map[string]string `json:"envs,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Mounts      []Mount           `json:"mounts,omitempty"`
	Devices     []Node            `json:"devices,omitempty"`
	CDI         []string          `json:"cdi,omitempty"`
}

// Answers holds the answers for one pod, by container and resource. A value is never changed: its methods return
// copies.
type Answers map[string]map[corev1.ResourceName]Answer

// with returns a copy that holds a for this container and resource.
func (all Answers) with(container string, name corev1.ResourceName, a Answer) Answers {
	more := maps.Clone(all)
	if more == nil {
		more = Answers{}
	}
	byName := maps.Clone(more[container])
	if byName == nil {
		byName = map[corev1.ResourceName]Answer{}
	}
	byName[name], more[container] = a, byName
	return more
}

// merge returns a copy with the later answers. An own answer for the same devices and boot stays, because a kubelet's
// checkpoint does not hold all of an answer.
func (all Answers) merge(later Answers) Answers {
	for container, byName := range later {
		for name, a := range byName {
			if own := all[container][name]; !own.Covers(a.IDs(), a.Boot) {
				all = all.with(container, name, a)
			}
		}
	}
	return all
}

// held returns the devices of the answers given during this boot, as the ledger represents them.
func held(pods map[types.UID]Answers, boot string) resource.Held {
	all := resource.Held{}
	for uid, answers := range pods {
		a := resource.Allocation{Containers: map[string]resource.Holding{}}
		for container, byName := range answers {
			given := resource.Holding{Devices: map[corev1.ResourceName][]device.ID{}}
			for name, answer := range byName {
				if answer.Boot == boot {
					given.Devices[name] = answer.IDs()
				}
			}
			if !given.IsEmpty() {
				a.Containers[container] = given
			}
		}
		if !a.IsEmpty() {
			all[uid] = a
		}
	}
	return all
}

// Mount is a directory or file of the host that a plugin mounts into a container.
type Mount struct {
	Container string `json:"container"`
	Host      string `json:"host"`
	ReadOnly  bool   `json:"readOnly,omitempty"`
}

// Node is a device node of the host that a plugin adds to a container.
type Node struct {
	Container string `json:"container"`
	Host      string `json:"host"`
	// Permissions has some of the device cgroup's letters r, w and m.
	Permissions string `json:"permissions"`
}

// Covers reports whether an answer was given for exactly these devices during this boot.
func (a Answer) Covers(ids []device.ID, boot string) bool {
	return a.Boot == boot && slices.Equal(a.IDs(), ids)
}

// IDs returns the ids of the allocated devices, sorted.
func (a Answer) IDs() []device.ID { return slices.Sorted(maps.Keys(a.Nodes)) }

// AnswerOf converts a plugin's response.
func AnswerOf(r *pluginapi.ContainerAllocateResponse) Answer {
	a := Answer{Envs: r.GetEnvs(), Annotations: r.GetAnnotations()}
	for _, m := range r.GetMounts() {
		a.Mounts = append(a.Mounts,
			Mount{Container: m.GetContainerPath(), Host: m.GetHostPath(), ReadOnly: m.GetReadOnly()})
	}
	for _, d := range r.GetDevices() {
		a.Devices = append(a.Devices,
			Node{Container: d.GetContainerPath(), Host: d.GetHostPath(), Permissions: d.GetPermissions()})
	}
	for _, d := range r.GetCdiDevices() {
		a.CDI = append(a.CDI, d.GetName())
	}
	return a
}
