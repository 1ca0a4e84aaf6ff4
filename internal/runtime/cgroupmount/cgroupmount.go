package cgroupmount

import (
	"errors"
	"fmt"

	"github.com/containerd/containerd/v2/core/mount"
	osinterface "github.com/containerd/containerd/v2/pkg/os"
	"github.com/opencontainers/cgroups"

	"github.com/berth-run/berth/internal/runtime/replace"
)

// path is where the hierarchies of cgroups are mounted.
const path = "/sys/fs/cgroup"

// errVersion1 is the answer for the mount of cgroups on version 1. The CRI plugin then looks for no options.
var errVersion1 = errors.New("cgroup version 1 has no mount options that containers need")

// machine is the CRI plugin's view of the machine.
type machine struct{ osinterface.OS }

// LookupMount implements os.OS.
func (m machine) LookupMount(dir string) (mount.Info, error) {
	if dir == path {
		return mount.Info{}, errVersion1
	}
	return m.OS.LookupMount(dir)
}

// Use makes containerd's CRI plugin use this package if the machine has cgroup version 1. Call it before the first
// container is created. The error says that containerd has changed, which every test of the runtime notices.
func Use(service any) error {
	if cgroups.IsCgroup2UnifiedMode() {
		return nil
	}
	stock, err := replace.Field[osinterface.OS](service, "Closer", "os")
	if err != nil {
		return fmt.Errorf("look for the mount of cgroups: %w", err)
	}
	*stock = machine{*stock}
	return nil
}
