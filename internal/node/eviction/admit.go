package eviction

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Awaited returns the message of a pod that may not start under this pressure.
func Awaited(pressure []corev1.NodeConditionType) string {
	names := make([]string, len(pressure))
	for i, condition := range pressure {
		names[i] = string(condition)
	}
	return "waiting for the end of " + strings.Join(names, " and ") + " of the node"
}

// Admits reports whether a pod may start while the node is under pressure, and if not, why. Critical pods always may.
// Under memory pressure alone, pods with a request or a limit may, and pods that tolerate the taint of the condition.
// Under disk or PID pressure only critical pods may.
func Admits(pressure []corev1.NodeConditionType, qos corev1.PodQOSClass, critical, toleratesMemoryPressure bool) (
	string, bool) {
	if len(pressure) == 0 || critical {
		return "", true
	}
	memoryAlone := !slices.ContainsFunc(pressure, func(c corev1.NodeConditionType) bool {
		return c != corev1.NodeMemoryPressure
	})
	if memoryAlone && (qos != corev1.PodQOSBestEffort || toleratesMemoryPressure) {
		return "", true
	}
	return fmt.Sprintf("The node had condition: %v. ", pressure), false
}
