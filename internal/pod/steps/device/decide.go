package device

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/pod/steps/device/record"
)

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

// apply adds the answers to a container's configuration, in the order of their resources. If two answers name the same
// thing, the first counts. What the pod's spec sets always counts. It returns the values that were left out although
// they differ.
func apply(config *runtimeapi.ContainerConfig, answers map[corev1.ResourceName]record.Answer) (conflicts []string) {
	envs, notes := map[string]string{}, map[string]string{}
	mounts, nodes := map[string]record.Mount{}, map[string]record.Node{}
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
