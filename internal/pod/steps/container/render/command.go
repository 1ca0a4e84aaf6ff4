package render

import corev1 "k8s.io/api/core/v1"

// ExpandCommand expands a command that is run in a container, such as an exec
// probe's. As in Kubernetes it sees only what the spec says of a variable: the
// last value, and nothing of one that comes from elsewhere.
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
