package pod

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Expand replaces $(NAME) by the variable's value, as Kubernetes does in commands, arguments, environment values and
// subPathExpr. "$$" becomes a dollar sign that starts no reference. A reference that lookup does not know stays
// unchanged.
func Expand(s string, lookup func(name string) (string, bool)) string {
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(s, "$")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		s = after
		switch {
		case strings.HasPrefix(s, "$"):
			b.WriteByte('$')
			s = s[1:]
		case strings.HasPrefix(s, "("):
			name, rest, closed := strings.Cut(s[1:], ")")
			if !closed {
				b.WriteString("$(")
				s = s[1:]
				continue
			}
			if value, known := lookup(name); known {
				b.WriteString(value)
			} else {
				b.WriteString("$(" + name + ")")
			}
			s = rest
		default:
			b.WriteByte('$')
		}
	}
}

// ExpandAll expands each string of a list.
func ExpandAll(list []string, lookup func(string) (string, bool)) []string {
	var out []string
	for _, s := range list {
		out = append(out, Expand(s, lookup))
	}
	return out
}

// ExpandCommand expands a command that is run in a container, such as an exec probe's. As in Kubernetes it uses only
// values that the spec spells out: the last value of a name, and the empty value for valueFrom.
func ExpandCommand(command []string, env []corev1.EnvVar) []string {
	values := map[string]string{}
	for _, e := range env {
		values[e.Name] = e.Value
	}
	return ExpandAll(command, func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	})
}
