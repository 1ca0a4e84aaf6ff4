package render

import corev1 "k8s.io/api/core/v1"

// ExpandCommand expands a command that is run in a container, such as an exec probe's. As in Kubernetes it uses only
// values that the spec spells out: the last value of a name, and the empty value for valueFrom.
func ExpandCommand(command []string, env []corev1.EnvVar) []string {
	values := map[string]string{}
	for _, e := range env {
		values[e.Name] = e.Value
	}
	return expandAll(command, func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	})
}
