package holder

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-run/berth/internal/base/sysctl"
)

// nobody is the user and group of holders. It is the last ID that a user namespace of a pod has to map.
const nobody = "65535"

// Namespaces are the namespaces of a pod, apart from those that it shares with the host.
type Namespaces struct {
	IPC, UTS, PID bool // the holder makes them
	Network, User bool // the holder joins them
}

// Sysctl is a kernel parameter of a pod, with its path below /proc/sys.
type Sysctl struct{ Path, Value string }

// descriptors of the program. The first is fixed in holder.c.
const (
	sysctlDescriptor = 3
	mountDescriptor  = 4
	codePath         = "/proc/self/fd/5" // of the program itself
	firstDescriptor  = 6                 // of the namespaces to join
)

// steps returns the steps of the program, as holder.c documents them. An action describes a step for an error.
//
// The holder leaves the host's mounts first, since it may not do so as root of another user namespace. It writes
// sysctls as root of the pod's user namespace, because the kernel lets that root change the pod's own sysctls.
func steps(of Namespaces, hostname string, sysctls []Sysctl) (list, actions []string) {
	add := func(step, action string) { list, actions = append(list, step), append(actions, action) }
	add("n"+strconv.Itoa(mountDescriptor), "leave the mounts of the host")
	join := firstDescriptor
	if of.User {
		add("n"+strconv.Itoa(join), "join the user namespace")
		add("r", "become root of the user namespace")
		join++
	}
	if of.Network {
		add("n"+strconv.Itoa(join), "join the network namespace")
	}
	var flags int
	if of.IPC {
		flags |= newIPC
	}
	if of.UTS {
		flags |= newUTS
	}
	if flags != 0 {
		add("u"+strconv.Itoa(flags), "make namespaces")
	}
	if of.UTS && hostname != "" {
		add("h"+hostname, "set the host name")
	}
	for _, s := range sysctls {
		add("w"+s.Path+"="+s.Value, "set sysctl "+s.Path)
	}
	flags = 0
	if of.PID {
		flags = newPID
	}
	add("f"+strconv.Itoa(flags), "start the process")
	add("i"+nobody, "drop privileges")
	return list, actions
}

// SysctlsOf returns the sysctls of a pod, sorted. It returns an error for a sysctl of a namespace that the pod shares
// with the host. A name may have dots or slashes, as sysctl(8) accepts them.
func SysctlsOf(named map[string]string, of Namespaces) ([]Sysctl, error) {
	var list []Sysctl
	for name, value := range named {
		path := sysctl.Path(name)
		own, namespace := of.Network, "network"
		switch {
		case strings.HasPrefix(path, "net/"):
		case strings.HasPrefix(path, "fs/mqueue/"), slices.Contains(ipcSysctls, path):
			own, namespace = of.IPC, "IPC"
		case path == "kernel/domainname":
			own, namespace = of.UTS, "UTS"
		default:
			return nil, fmt.Errorf("sysctl %q: it belongs to no namespace, so it would change the host", name)
		}
		if !own {
			return nil, fmt.Errorf("sysctl %q: the pod has no %s namespace of its own", name, namespace)
		}
		if slices.Contains(strings.Split(path, "/"), "..") || strings.ContainsAny(path, "=\x00") ||
			strings.ContainsRune(value, 0) {
			return nil, fmt.Errorf("sysctl %q: the name or the value has forbidden characters", name)
		}
		list = append(list, Sysctl{path, value})
	}
	slices.SortFunc(list, func(a, b Sysctl) int { return strings.Compare(a.Path, b.Path) })
	return list, nil
}

// ipcSysctls are the sysctls of an IPC namespace (ipc_namespaces(7)), apart from the sysctls of POSIX message queues.
var ipcSysctls = []string{
	"kernel/msgmax", "kernel/msgmnb", "kernel/msgmni", "kernel/sem", "kernel/shmall", "kernel/shmmax", "kernel/shmmni",
	"kernel/shm_rmid_forced",
}

// startOf reads the start time of a process, in clock ticks since the boot, from the content of /proc/PID/stat. The
// name of the program, in parentheses, may contain anything.
func startOf(stat string) (uint64, error) {
	const field = 22 - 3 // the first field after the name is the third
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= field {
		return 0, errors.New("read the start time of a process: /proc/PID/stat is incomplete")
	}
	return strconv.ParseUint(fields[field], 10, 64)
}
