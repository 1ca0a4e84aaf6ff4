package sysctl

import "strings"

// Name returns a sysctl's name with dots between its parts. A name written with slashes may contain dots within a part,
// such as the name of a VLAN interface.
func Name(name string) string {
	if separator(name) == '/' {
		return swap(name)
	}
	return name
}

// Path returns the path of a sysctl below /proc/sys. A name written with dots may contain slashes within a part:
// net.ipv4.conf.eth0/100.forwarding has the part eth0.100.
func Path(name string) string {
	if separator(name) == '.' {
		return swap(name)
	}
	return name
}

// separator returns whichever of dot and slash comes first. It separates the parts of the name, and the other one is a
// character of a part. It returns 0 for a name without parts.
func separator(name string) byte {
	if at := strings.IndexAny(name, "./"); at >= 0 {
		return name[at]
	}
	return 0
}

// swap exchanges dots and slashes.
func swap(name string) string {
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
