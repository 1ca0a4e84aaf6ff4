package plugin

import (
	"strings"
	"time"
)

// Delays between attempts to reach a plugin.
const (
	firstDelay = 200 * time.Millisecond
	maxDelay   = 30 * time.Second
)

// hidden reports whether a file or directory is ignored, as by the kubelet.
func hidden(name string) bool { return strings.HasPrefix(name, ".") }

// identity identifies a socket. A socket created again under the same name has another one.
type identity struct {
	inode  uint64
	device uint64
	made   int64 // modification time in ns: only the creation sets it
}

// changes compares two scans by path. removed are sockets that are removed or were replaced; added are new ones and
// replacements.
func changes(was, now map[string]identity) (removed, added []string) {
	for path, id := range was {
		if now[path] != id {
			removed = append(removed, path)
		}
	}
	for path, id := range now {
		if was[path] != id {
			added = append(added, path)
		}
	}
	return removed, added
}
