package cgroup

import (
	"maps"
	"os"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-run/berth/internal/config"
	machine "github.com/berth-run/berth/internal/node"
)

// Usable is what all pods may use together: what is not reserved or, if that is
// not enforced, all. It has the number of processes if some are reserved.
func Usable(f machine.Facts, n config.Node) corev1.ResourceList {
	if !n.Enforce.Pods {
		return f.Capacity
	}
	system, kube := n.SystemReserved[PIDs], n.KubeReserved[PIDs]
	text, err := os.ReadFile("/proc/sys/kernel/pid_max")
	if err != nil || system.IsZero() && kube.IsZero() {
		return f.Usable
	}
	most, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return f.Usable
	}
	all := maps.Clone(f.Usable)
	all[PIDs] = *resource.NewQuantity(max(1, most-system.Value()-kube.Value()), resource.DecimalSI)
	return all
}

// ReservedOf are the cgroups that are bounded beside that of all pods.
func ReservedOf(n config.Node) []Reserved {
	var all []Reserved
	for _, r := range []struct {
		who    string
		cgroup config.ReservedCgroup
		of     corev1.ResourceList
	}{{"System Reserved", n.Enforce.System, n.SystemReserved}, {"Kube Reserved", n.Enforce.Kube, n.KubeReserved}} {
		if r.cgroup.Path != "" {
			all = append(all,
				Reserved{For: r.who, Path: r.cgroup.Path, Amounts: r.of, Compressible: r.cgroup.Compressible})
		}
	}
	return all
}
