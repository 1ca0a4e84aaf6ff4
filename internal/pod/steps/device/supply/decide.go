package supply

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

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
