//go:build cgo

package create

import (
	// nsenter runs before the Go runtime in a container's first process. It is C code: the namespaces can only be
	// entered while the process has one thread.
	_ "github.com/opencontainers/runc/libcontainer/nsenter"

	_ "github.com/berth-run/berth/internal/runtime/shim/prefault" // runs in the first process after nsenter
)

// enters says that this program was built with nsenter.
const enters = true
