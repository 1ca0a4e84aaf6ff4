package stream

import (
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// annotationDefaultContainer names the container that commands use by default (well-known annotation of
// Kubernetes).
const annotationDefaultContainer = "kubectl.kubernetes.io/default-container"

// DefaultContainer returns the container to use if the user names none: the annotated one, or the first. If
// it picks the first of several, it prints its choice.
func DefaultContainer(stderr io.Writer, p *corev1.Pod) string {
	if name := p.Annotations[annotationDefaultContainer]; name != "" {
		if _, ok := pod.FindContainer(p, name); ok {
			return name
		}
	}
	if len(p.Spec.Containers) == 0 {
		return ""
	}
	name := p.Spec.Containers[0].Name
	if len(p.Spec.Containers) > 1 {
		var names []string
		for _, c := range p.Spec.Containers {
			names = append(names, c.Name)
		}
		fmt.Fprintf(stderr, "Defaulted to container %s of %v\n", name, names)
	}
	return name
}
