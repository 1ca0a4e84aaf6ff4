package object

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// ApplyClass adds the overhead, node selector and tolerations of its RuntimeClass to a pod, as the API server does
// (KEP-688). Values that the pod has already stay, even if they differ.
func ApplyClass(spec *corev1.PodSpec, class *nodev1.RuntimeClass) {
	if class.Overhead != nil && len(spec.Overhead) == 0 {
		spec.Overhead = maps.Clone(class.Overhead.PodFixed)
	}
	if s := class.Scheduling; s != nil {
		selector := map[string]string{}
		maps.Copy(selector, s.NodeSelector)
		maps.Copy(selector, spec.NodeSelector)
		spec.NodeSelector = selector
		for _, t := range s.Tolerations {
			if !slices.ContainsFunc(spec.Tolerations, func(o corev1.Toleration) bool {
				return equality.Semantic.DeepEqual(o, t)
			}) {
				spec.Tolerations = append(spec.Tolerations, t)
			}
		}
	}
}
