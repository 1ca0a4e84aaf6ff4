package render

import "strings"

// expand replaces $(NAME) by the variable's value, as Kubernetes does in commands, arguments, environment values and
// subPathExpr. "$$" becomes a dollar sign that starts no reference. A reference that lookup does not know stays
// unchanged.
func expand(s string, lookup func(name string) (string, bool)) string {
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

func expandAll(list []string, lookup func(string) (string, bool)) []string {
	var out []string
	for _, s := range list {
		out = append(out, expand(s, lookup))
	}
	return out
}
