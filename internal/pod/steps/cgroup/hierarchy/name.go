package hierarchy

import (
	"path"
	"strings"

	"github.com/opencontainers/cgroups/systemd"
)

// Name is a cgroup's place in the tree, with one element for each level.
type Name []string

// ParseName reads a path such as /edge/pods. "" and / are the root.
func ParseName(p string) Name {
	var n Name
	for part := range strings.SplitSeq(p, "/") {
		if part != "" {
			n = append(n, part)
		}
	}
	return n
}

// Child returns the name of a cgroup below n.
func (n Name) Child(parts ...string) Name {
	return append(append(make(Name, 0, len(n)+len(parts)), n...), parts...)
}

// Cgroupfs returns the name as a path below a controller's mount point.
func (n Name) Cgroupfs() string { return "/" + path.Join(n...) }

// Systemd returns the name as nested slices. A slice's name contains the names of the slices around it, separated by -,
// and therefore - within a name becomes _.
func (n Name) Systemd() (string, error) {
	if len(n) == 0 {
		return "/", nil
	}
	parts := make([]string, len(n))
	for i, part := range n {
		parts[i] = strings.ReplaceAll(part, "-", "_")
	}
	return systemd.ExpandSlice(strings.Join(parts, "-") + ".slice")
}
