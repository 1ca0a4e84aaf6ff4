package builtin

import (
	"fmt"
	"os"

	"github.com/berth-run/berth/internal/runtime/shim/cgroup"
)

// Delete removes the remains of a container that has ended: its cgroup, with the remaining processes in it, and runc's
// state directory. name is the specification's name of the cgroup.
func Delete(container, stateDir, name string) error {
	if err := cgroup.Remove(container, name); err != nil {
		return err
	}
	if err := os.RemoveAll(stateDir); err != nil {
		return fmt.Errorf("remove the state of container %s: %w", container, err)
	}
	return nil
}
