package pod

import "strings"

// SysctlName spells a sysctl with dots between its parts. One written with
// slashes may have dots within a part, as of a VLAN interface (sysctl.d(5)).
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
