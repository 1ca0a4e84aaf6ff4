package plugin

import (
	"strings"
	"time"
)

// How long after a plugin did not answer it is asked again.
const (
	firstPause = 200 * time.Millisecond
	lastPause  = 30 * time.Second
)

// pause is the time to the next try after so many failures, at least one.
func pause(failures int) time.Duration {
	return min(firstPause<<min(failures-1, 20), lastPause)
}

// hidden says that a file or directory is of no concern, as for the kubelet.
func hidden(name string) bool { return strings.HasPrefix(name, ".") }

// identity is one socket: another one made under its name has another.
type identity struct {
	inode  uint64
	device uint64
	made   int64 // its modification time in ns, which nothing but its making sets
}

// changes are what became of the sockets, by path: those that are no more, with
// those that were replaced, and those to follow.
func changes(was, now map[string]identity) (gone, come []string) {
	for path, id := range was {
		if now[path] != id {
			gone = append(gone, path)
		}
	}
	for path, id := range now {
		if was[path] != id {
			come = append(come, path)
		}
	}
	return gone, come
}
