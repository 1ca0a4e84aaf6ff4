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

// Usable returns the resources that all pods may use together: everything that is not reserved, or the whole capacity
// if that limit is not enforced. It includes the number of processes if some are reserved.
func Usable(f machine.Facts, n config.Node) corev1.ResourceList {
	if !n.Enforce.Pods {
		return f.Capacity
	}
	system, kube := n.SystemReserved[PIDs], n.KubeReserved[PIDs]
	text, err := os.ReadFile("/proc/sys/kernel/pid_max")
	if err != nil || system.IsZero() && kube.IsZero() {
		return f.Usable
	}
	limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return f.Usable
	}
	all := maps.Clone(f.Usable)
	all[PIDs] = *resource.NewQuantity(max(1, limit-system.Value()-kube.Value()), resource.DecimalSI)
	return all
}

// ReservedOf returns the reserved cgroups whose limits are enforced.
func ReservedOf(n config.Node) []Reserved {
	var all []Reserved
	for _, r := range []struct {
		name    string
		cgroup  config.ReservedCgroup
		amounts corev1.ResourceList
	}{{"System Reserved", n.Enforce.System, n.SystemReserved}, {"Kube Reserved", n.Enforce.Kube, n.KubeReserved}} {
		if r.cgroup.Path != "" {
			all = append(all,
				Reserved{For: r.name, Path: r.cgroup.Path, Amounts: r.amounts, Compressible: r.cgroup.Compressible})
		}
	}
	return all
}
