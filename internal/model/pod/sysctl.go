package pod

import "strings"

// SysctlName returns a sysctl's name with dots between its parts. A name written with slashes may contain dots within a
// part, such as the name of a VLAN interface (sysctl.d(5)).
func SysctlName(name string) string {
	first := strings.IndexAny(name, "./")
	if first < 0 || name[first] == '.' {
		return name
	}
	return strings.Map(func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}, name)
}
