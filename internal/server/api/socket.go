package api

import "path/filepath"

const (
	// DefaultRoot is the directory of the agent's state when none is given.
	DefaultRoot = "/var/lib/berth"
	// DefaultSocket is the local API of the agent on DefaultRoot.
	DefaultSocket = "/run/berth/berth.sock"
)

// Socket is where the agent on a root directory listens: DefaultSocket for
// DefaultRoot, berth.sock within any other root.
func Socket(root string) string {
	if root == "" || filepath.Clean(root) == DefaultRoot {
		return DefaultSocket
	}
	return filepath.Join(root, "berth.sock")
}
