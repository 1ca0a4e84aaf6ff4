package create

import "github.com/berth-run/berth/internal/docker/dockershim/index"

// verdict says what to do about the container that has the name of a new one.
type verdict int

const (
	// ours was made by an earlier call with the same request: use it.
	ours verdict = iota
	// dead does not run, or was made only in part: remove it.
	dead
	// taken runs and was made for another request: fail.
	taken
	// phantom does not exist: take another name.
	phantom
)

// decide judges the holder of a name; it is nil if there is no such container. spec is the hash of the new request.
func decide(holder *index.Record, spec string, usable func(*index.Record) bool) verdict {
	switch {
	case holder == nil:
		return phantom
	case spec != "" && holder.Spec == spec && usable(holder):
		return ours
	case !usable(holder), !holder.Running():
		return dead
	}
	return taken
}
