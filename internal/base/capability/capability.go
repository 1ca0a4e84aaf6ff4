package capability

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Set is a set of capabilities: bit N stands for the capability N.
type Set uint64

// Effective returns the capabilities that the kernel checks when this process acts.
func Effective() (Set, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, fmt.Errorf("read own capabilities: %w", err)
	}
	return Set(data[0].Effective) | Set(data[1].Effective)<<32, nil
}

// Has reports whether a capability, such as unix.CAP_SYS_ADMIN, is in the set.
func (s Set) Has(capability int) bool { return s&(1<<capability) != 0 }

// Lacking returns the names of the capabilities that an agent needs and that are not in the set. Privileged containers
// are for the same ones: they change the machine. The list omits capabilities that container managers often withhold
// and that few programs use, such as CAP_SYS_RESOURCE and CAP_SYS_TIME.
func (s Set) Lacking() (names []string) {
	for _, c := range []struct {
		name string
		bit  int
	}{
		{"CAP_CHOWN", unix.CAP_CHOWN}, {"CAP_DAC_OVERRIDE", unix.CAP_DAC_OVERRIDE}, {"CAP_FOWNER", unix.CAP_FOWNER},
		{"CAP_KILL", unix.CAP_KILL}, {"CAP_SETUID", unix.CAP_SETUID}, {"CAP_SETGID", unix.CAP_SETGID},
		{"CAP_SETPCAP", unix.CAP_SETPCAP}, {"CAP_NET_ADMIN", unix.CAP_NET_ADMIN},
		{"CAP_SYS_CHROOT", unix.CAP_SYS_CHROOT}, {"CAP_SYS_PTRACE", unix.CAP_SYS_PTRACE},
		{"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN}, {"CAP_MKNOD", unix.CAP_MKNOD},
	} {
		if !s.Has(c.bit) {
			names = append(names, c.name)
		}
	}
	return names
}
