//go:build cgo

package create

// nsenter runs before the Go runtime in a container's first process. It is C code: the namespaces can only be entered
// while the process has one thread.
import (
	_ "github.com/opencontainers/runc/libcontainer/nsenter"

	_ "github.com/berth-run/berth/internal/runtime/shim/prefault" // for the rest of the time of that process
)

// enters says that this program was built with nsenter.
const enters = true
