package config

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Enforcement configures the limits of the pods' cgroup and of the reserved cgroups.
type Enforcement struct {
	// Pods limits all pods together to the resources that are not reserved. Default true.
	Pods bool
	// System and Kube are the cgroups that systemReserved and kubeReserved limit.
	System, Kube ReservedCgroup
	// MemoryQoS is nil unless the feature gate of that name is on (KEP-2570).
	MemoryQoS *MemoryQoS
	// QOSReservedMemory is the percentage of the memory requests of higher QoS classes that lower classes cannot use.
	// Default 0.
	QOSReservedMemory int64
	// ThrottleExclusive keeps the CPU quota of containers with exclusive CPUs (feature gate
	// DisableCPUQuotaWithExclusiveCPUs: false).
	ThrottleExclusive bool
}

// ReservedCgroup is an existing cgroup. The zero value means none.
type ReservedCgroup struct {
	Path string
	// Compressible limits only its CPU.
	Compressible bool
}

// MemoryQoS configures memory protection and throttling on cgroup v2 (KEP-2570).
type MemoryQoS struct {
	// ThrottlingFactor sets the point between request and limit where the throttling of a container begins. Its range
	// is more than 0 to 1, its default 0.9.
	ThrottlingFactor float64
	// Tiered protects requested memory from reclaim (TieredReservation).
	Tiered bool
}

func readEnforcement(in *input) Enforcement {
	kc := in.kc
	on := kc.EnforceNodeAllocatable
	all := []string{"pods", "system-reserved", "system-reserved-compressible", "kube-reserved",
		"kube-reserved-compressible", "none"}
	for i, word := range on {
		switch {
		case !slices.Contains(all, word):
			in.Add(field.ErrorList{field.NotSupported(field.NewPath("enforceNodeAllocatable"), word, all)})
		case slices.Contains(on[:i], word):
			in.Add(field.ErrorList{field.Duplicate(field.NewPath("enforceNodeAllocatable"), word)})
		case word == "none" && len(on) > 1:
			in.Invalid("enforceNodeAllocatable", on, "must be none alone, or without it")
		}
	}
	e := Enforcement{
		Pods:              slices.Contains(on, "pods"),
		System:            readReservedCgroup(in, "system", on, kc.SystemReservedCgroup),
		Kube:              readReservedCgroup(in, "kube", on, kc.KubeReservedCgroup),
		MemoryQoS:         readMemoryQoS(in),
		QOSReservedMemory: readQOSReserved(in),
	}
	if off, set := kc.FeatureGates["DisableCPUQuotaWithExclusiveCPUs"]; set {
		e.ThrottleExclusive = !off
	}
	return e
}

func readReservedCgroup(in *input, who string, on []string, path string) ReservedCgroup {
	whole, cpu := slices.Contains(on, who+"-reserved"), slices.Contains(on, who+"-reserved-compressible")
	name := who + "ReservedCgroup"
	in.Absolute(name, path)
	switch {
	case whole && cpu:
		in.Invalid("enforceNodeAllocatable", on, "must have only one of %[1]s-reserved and %[1]s-reserved-compressible",
			who)
	case (whole || cpu) && path == "":
		in.Invalid(name, path, "must be set to the cgroup that enforceNodeAllocatable limits")
	case whole || cpu:
		return ReservedCgroup{Path: path, Compressible: cpu}
	}
	return ReservedCgroup{}
}

func readMemoryQoS(in *input) *MemoryQoS {
	q := &MemoryQoS{ThrottlingFactor: *in.kc.MemoryThrottlingFactor}
	if q.ThrottlingFactor <= 0 || q.ThrottlingFactor > 1 {
		in.Invalid("memoryThrottlingFactor", q.ThrottlingFactor, "must be more than 0 and at most 1")
	}
	on := in.kc.FeatureGates["MemoryQoS"]
	switch policy := string(in.kc.MemoryReservationPolicy); policy {
	case "None":
	case "TieredReservation":
		q.Tiered = true
		if !on {
			in.Invalid("memoryReservationPolicy", policy, "needs the feature gate MemoryQoS: true")
		}
	default:
		in.Add(field.ErrorList{field.NotSupported(field.NewPath("memoryReservationPolicy"), policy,
			[]string{"None", "TieredReservation"})})
	}
	if !on {
		return nil
	}
	return q
}

func readQOSReserved(in *input) int64 {
	var percent int64
	for name, text := range in.kc.QOSReserved {
		if name != "memory" {
			in.Add(field.ErrorList{field.NotSupported(field.NewPath("qosReserved"), name, []string{"memory"})})
			continue
		}
		number, ok := strings.CutSuffix(text, "%")
		if _, err := fmt.Sscanf(number, "%d", &percent); err != nil || !ok || percent < 0 || percent > 100 {
			in.Invalid("qosReserved", text, "must be a percentage between 0%% and 100%%")
		}
	}
	if len(in.kc.QOSReserved) > 0 && !in.kc.FeatureGates["QOSReserved"] {
		in.Invalid("qosReserved", in.kc.QOSReserved, "needs the feature gate QOSReserved: true")
	}
	return percent
}
