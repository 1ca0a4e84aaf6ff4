//go:build cgo

package create

// nsenter runs before the Go runtime in a container's first process. It is C code: the namespaces can only be entered
// while the process has one thread.
import _ "github.com/opencontainers/runc/libcontainer/nsenter"

// enters says that this program was built with nsenter.
const enters = true
