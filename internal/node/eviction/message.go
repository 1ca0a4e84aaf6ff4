package eviction

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The annotations of an eviction's event, as the kubelet writes them.
const (
	OffendingContainers      = "offending_containers"
	OffendingContainersUsage = "offending_containers_usage"
	OffendingPod             = "offending_pod"
	OffendingPodUsage        = "offending_pod_usage"
	StarvedResource          = "starved_resource"
)

// Usage is how much a victim uses of the resource that is short, in bytes. It is empty for inodes and processes.
type Usage struct {
	// Pod is the use of the whole pod, if it was measured and the pod has requests of its own.
	Pod *int64
	// Containers holds the use by container that was measured, in the order of the runtime.
	Containers []ContainerUsage
}

// ContainerUsage is the use of one container.
type ContainerUsage struct {
	Name  string
	Bytes int64
}

// Message says why a pod is evicted, in the words of the kubelet, and returns the annotations of the event. Only
// containers that use more than they requested are named. Ephemeral containers have no requests and are left out.
func Message(p *corev1.Pod, c Crossing, used Usage) (string, map[string]string) {
	short := c.Threshold.Signal.Resource()
	var text strings.Builder
	fmt.Fprintf(&text, "The node was low on resource: %s. Threshold quantity: %s, available: %s. ", short,
		c.Threshold.Value.String(c.Seen.Capacity), format(short, c.Seen.Available))
	annotations := map[string]string{StarvedResource: string(short)}
	if r := p.Spec.Resources; r != nil && used.Pod != nil && short == corev1.ResourceMemory {
		if request, ok := r.Requests[short]; ok {
			fmt.Fprintf(&text, "Pod %s was using %s, request is %s, has larger consumption of %s. ", p.Name,
				format(short, *used.Pod), request.String(), short)
			annotations[OffendingPod], annotations[OffendingPodUsage] = p.Name, format(short, *used.Pod)
		}
	}
	var names, amounts []string
	for _, u := range used.Containers {
		i := slices.IndexFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == u.Name })
		j := slices.IndexFunc(p.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == u.Name })
		var request resource.Quantity
		switch {
		case i >= 0:
			request = p.Spec.Containers[i].Resources.Requests[short]
		case j >= 0:
			request = p.Spec.InitContainers[j].Resources.Requests[short]
		default:
			continue
		}
		if u.Bytes <= request.Value() {
			continue
		}
		fmt.Fprintf(&text, "Container %s was using %s, request is %s, has larger consumption of %s. ", u.Name,
			format(short, u.Bytes), request.String(), short)
		names, amounts = append(names, u.Name), append(amounts, format(short, u.Bytes))
	}
	annotations[OffendingContainers] = strings.Join(names, ",")
	annotations[OffendingContainersUsage] = strings.Join(amounts, ",")
	return text.String(), annotations
}

// format writes an amount of a resource as the API does.
func format(name corev1.ResourceName, amount int64) string {
	if name == Inodes || name == PIDs {
		return resource.NewQuantity(amount, resource.DecimalSI).String()
	}
	return resource.NewQuantity(amount, resource.BinarySI).String()
}
