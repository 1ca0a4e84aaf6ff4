package device

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// checkRegistration returns why a registration is refused. The plugin receives the text as the error of its call.
func checkRegistration(r *pluginapi.RegisterRequest) error {
	if err := checkVersions(r.GetVersion()); err != nil {
		return err
	}
	if err := checkResource(r.GetResourceName()); err != nil {
		return err
	}
	if !filepath.IsLocal(r.GetEndpoint()) {
		return fmt.Errorf(
			"the endpoint %q is not the name of a socket in the directory of the registration socket",
			r.GetEndpoint())
	}
	return nil
}

// checkVersions returns an error unless this node supports one of a plugin's versions.
func checkVersions(versions ...string) error {
	if !slices.ContainsFunc(versions, func(v string) bool {
		return slices.Contains(pluginapi.SupportedVersions[:], v)
	}) {
		return fmt.Errorf("requested API version %q is not supported: use one of %q", strings.Join(versions, ", "),
			pluginapi.SupportedVersions)
	}
	return nil
}

func checkResource(name string) error {
	if !isExtended(name) {
		return fmt.Errorf("the ResourceName %q is invalid: it must be DOMAIN/NAME, outside kubernetes.io", name)
	}
	return nil
}

// isExtended reports whether name can be an extended resource: it has a domain, the domain is not Kubernetes' own, and
// the name with the prefix "requests." is a valid quota key.
func isExtended(name string) bool {
	return strings.Contains(name, "/") && !strings.Contains(name, corev1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+name)) == 0
}

// devicesOf converts a plugin's list into devices sorted by id. It drops NUMA nodes that the machine does not have.
func devicesOf(list []*pluginapi.Device, machine topology.Nodes) []device.Device {
	byID := make(map[device.ID]device.Device, len(list))
	for _, d := range list {
		read := device.Device{ID: d.GetID(), Healthy: d.GetHealth() == pluginapi.Healthy}
		for _, n := range d.GetTopology().GetNodes() {
			if id := n.GetID(); id >= 0 && id < 64 {
				read.Nodes |= topology.Of(int(id)) & machine
			}
		}
		byID[read.ID] = read
	}
	devices := make([]device.Device, 0, len(byID))
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		devices = append(devices, byID[id])
	}
	return devices
}

// lost returns the devices with all of them marked unhealthy, because their plugin is not connected.
func lost(devices []device.Device) []device.Device {
	devices = slices.Clone(devices)
	for i := range devices {
		devices[i].Healthy = false
	}
	return devices
}

// nodesOf returns the NUMA nodes of a device, 0 if they are unknown. devices must be sorted by id.
func nodesOf(devices []device.Device, id device.ID) topology.Nodes {
	d, _ := find(devices, id)
	return d.Nodes
}

func find(devices []device.Device, id device.ID) (device.Device, bool) {
	i, found := slices.BinarySearchFunc(devices, id, func(d device.Device, id device.ID) int {
		return cmp.Compare(d.ID, id)
	})
	if !found {
		return device.Device{}, false
	}
	return devices[i], true
}

// unhealthy returns the ids whose device is unhealthy or missing from devices.
func unhealthy(devices []device.Device, ids []device.ID) []device.ID {
	return slices.DeleteFunc(slices.Clone(ids), func(id device.ID) bool {
		d, _ := find(devices, id)
		return d.Healthy
	})
}

// want lists the devices that a container holds of one resource.
type want struct {
	container string
	resource  corev1.ResourceName
	ids       []device.ID
	// fixed are the devices that an earlier container of the pod holds too. They are not exchanged.
	fixed sets.Set[device.ID]
}

// wants lists the devices that the containers of a pod hold, in start order.
func wants(p *corev1.Pod, a resource.Allocation) []want {
	var all []want
	earlier := map[corev1.ResourceName]sets.Set[device.ID]{}
	for _, c := range pod.Containers(p) {
		given := a.Containers[c.Name].Devices
		for _, name := range slices.Sorted(maps.Keys(given)) {
			ids := sets.New(given[name]...)
			if ids.Len() == 0 {
				continue
			}
			if earlier[name] == nil {
				earlier[name] = sets.New[device.ID]()
			}
			all = append(all, want{c.Name, name, sets.List(ids), ids.Intersection(earlier[name])})
			earlier[name] = earlier[name].Union(ids)
		}
	}
	return all
}

// exchanged returns the new device ids of each container of a pod after one container's devices changed from old to
// now. A container that shares a replaced device gets the same replacement. Containers without a change are omitted.
func exchanged(a resource.Allocation, name corev1.ResourceName, old, now []device.ID) map[string][]device.ID {
	gone, come := sets.New(old...).Difference(sets.New(now...)), sets.New(now...).Difference(sets.New(old...))
	replacement := map[device.ID]device.ID{}
	for i, id := range sets.List(gone) {
		replacement[id] = sets.List(come)[i]
	}
	changed := map[string][]device.ID{}
	for container, given := range a.Containers {
		ids, differs := slices.Clone(given.Devices[name]), false
		for i, id := range ids {
			if other, ok := replacement[id]; ok {
				ids[i], differs = other, true
			}
		}
		if differs {
			slices.Sort(ids)
			changed[container] = ids
		}
	}
	return changed
}

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

// answers holds the answers for one pod, by container and resource. A value is never changed: its methods return
// copies.
type answers map[string]map[corev1.ResourceName]Answer

// with returns a copy that holds a for this container and resource.
func (all answers) with(container string, name corev1.ResourceName, a Answer) answers {
	more := maps.Clone(all)
	if more == nil {
		more = answers{}
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
func (all answers) merge(later answers) answers {
	for container, byName := range later {
		for name, a := range byName {
			if own := all[container][name]; !own.covers(a.ids(), a.Boot) {
				all = all.with(container, name, a)
			}
		}
	}
	return all
}

// held returns the devices of the answers given during this boot, as the ledger represents them.
func held(pods map[types.UID]answers, boot string) resource.Held {
	all := resource.Held{}
	for uid, answers := range pods {
		a := resource.Allocation{Containers: map[string]resource.Holding{}}
		for container, byName := range answers {
			given := resource.Holding{Devices: map[corev1.ResourceName][]device.ID{}}
			for name, answer := range byName {
				if answer.Boot == boot {
					given.Devices[name] = answer.ids()
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

// covers reports whether an answer was given for exactly these devices during this boot.
func (a Answer) covers(ids []device.ID, boot string) bool {
	return a.Boot == boot && slices.Equal(a.ids(), ids)
}

func (a Answer) ids() []device.ID { return slices.Sorted(maps.Keys(a.Nodes)) }

// answerOf converts a plugin's response.
func answerOf(r *pluginapi.ContainerAllocateResponse) Answer {
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

// apply adds the answers to a container's configuration, in the order of their resources. If two answers name the same
// thing, the first counts. What the pod's spec sets always counts. It returns the values that were left out although
// they differ.
func apply(config *runtimeapi.ContainerConfig, answers map[corev1.ResourceName]Answer) (conflicts []string) {
	envs, mounts, nodes, notes := map[string]string{}, map[string]Mount{}, map[string]Node{}, map[string]string{}
	cdi := sets.New[string]()
	var variables []*runtimeapi.KeyValue
	var mounted []*runtimeapi.Mount
	for _, name := range slices.Sorted(maps.Keys(answers)) {
		a := answers[name]
		differs := func(kind, key string, same bool) {
			if !same {
				conflicts = append(conflicts, fmt.Sprintf("%s %s of %s", kind, key, name))
			}
		}
		for _, key := range slices.Sorted(maps.Keys(a.Envs)) {
			if was, ok := envs[key]; ok {
				differs("environment variable", key, was == a.Envs[key])
				continue
			}
			envs[key] = a.Envs[key]
			variables = append(variables, &runtimeapi.KeyValue{Key: key, Value: []byte(a.Envs[key])})
		}
		for _, m := range a.Mounts {
			if was, ok := mounts[m.Container]; ok {
				differs("mount", m.Container, was == m)
				continue
			}
			mounts[m.Container] = m
			mounted = append(mounted,
				&runtimeapi.Mount{ContainerPath: m.Container, HostPath: m.Host, Readonly: m.ReadOnly})
		}
		for _, d := range a.Devices {
			if was, ok := nodes[d.Container]; ok {
				differs("device", d.Container, was == d)
				continue
			}
			nodes[d.Container] = d
			config.Devices = append(config.Devices,
				&runtimeapi.Device{ContainerPath: d.Container, HostPath: d.Host, Permissions: d.Permissions})
		}
		for _, key := range slices.Sorted(maps.Keys(a.Annotations)) {
			if was, ok := notes[key]; ok {
				differs("annotation", key, was == a.Annotations[key])
				continue
			}
			notes[key] = a.Annotations[key]
		}
		for _, d := range a.CDI {
			if !cdi.Has(d) {
				cdi.Insert(d)
				config.CDIDevices = append(config.CDIDevices, &runtimeapi.CDIDevice{Name: d})
			}
		}
	}
	// The last value of a name counts, so the pod's own values come last.
	config.Envs = slices.Concat(variables, config.Envs)
	config.Mounts = slices.Concat(mounted, config.Mounts)
	for key, value := range notes {
		if _, own := config.Annotations[key]; own {
			continue
		}
		if config.Annotations == nil {
			config.Annotations = map[string]string{}
		}
		config.Annotations[key] = value
	}
	return conflicts
}

// health returns the health of a device that a container holds (KEP-4680). It is Unknown if the plugin does not list
// the device or is not connected.
func health(devices []device.Device, served bool, id device.ID) corev1.ResourceHealthStatus {
	d, found := find(devices, id)
	switch {
	case !served || !found:
		return corev1.ResourceHealthStatusUnknown
	case d.Healthy:
		return corev1.ResourceHealthStatusHealthy
	}
	return corev1.ResourceHealthStatusUnhealthy
}
