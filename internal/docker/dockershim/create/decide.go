package create

import "github.com/berth-run/berth/internal/docker/dockershim/index"

// verdict is the decision about the container that already has the name of a new one.
type verdict int

const (
	// reuse: an earlier call with the same request has created it.
	reuse verdict = iota
	// remove: it does not run, or was made only in part.
	remove
	// refuse: it runs and was made for another request.
	refuse
	// rename: it does not exist, and only its name is in use. The new container gets another name.
	rename
)

// decide judges the container that holds a name. holder is nil if the Engine has no such container. spec is the hash of
// the new request.
func decide(holder *index.Record, spec string, usable func(*index.Record) bool) verdict {
	switch {
	case holder == nil:
		return rename
	case spec != "" && holder.Spec == spec && usable(holder):
		return reuse
	case !usable(holder), !holder.Running():
		return remove
	}
	return refuse
}
