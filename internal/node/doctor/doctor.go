package doctor

import (
	"net/netip"
	"time"
)

// Level says how bad a finding is.
type Level string

// Levels of a finding.
const (
	// Problem means that pods cannot run, or not all of them.
	Problem Level = "problem"
	// Warning means that pods run, but something will go wrong under load or later.
	Warning Level = "warning"
	// Note is a fact that explains what Berth does here.
	Note Level = "note"
)

// Finding is something about the machine that a user should know.
type Finding struct {
	// Check is the name of the check, such as swap.
	Check   string `json:"check"`
	Level   Level  `json:"level"`
	Message string `json:"message"`
	// Next is the user's next step.
	Next string `json:"next"`
}

// Facts are the input of the checks.
type Facts struct {
	// Kernel is the release of the kernel, such as 6.12.9-amd64.
	Kernel string
	Cgroup Cgroup
	// Overlay means that the kernel has overlayfs, or a module with it. Nftables and IPTables mean that the packet
	// filter answers.
	Overlay, Nftables, IPTables bool
	// Sysctls has the values of the sysctls that the checks look at. A sysctl that the kernel lacks is missing.
	Sysctls map[string]int64
	// Swaps are the devices and files with swap. SwapUsed means that the configuration lets pods use it.
	Swaps    []string
	SwapUsed bool
	Disk     Disk
	Clock    Clock
	// Networks are the routes of the machine. PodRanges are the configured addresses of pods.
	Networks  []Network
	PodRanges []netip.Prefix
	// BuiltInNetwork means that pods get the agent's own network while the machine has no CNI configuration.
	BuiltInNetwork bool
	// OwnImages means that the runtime of pods shares no images with other programs. Runtimes are the sockets of other
	// runtimes that answer.
	OwnImages bool
	Runtimes  []string
	// Kubelets are the process IDs of kubelets.
	Kubelets []int
	// Missing are the capabilities that this process lacks.
	Missing []string
	// CRIU means that the program for checkpoints is in PATH.
	CRIU bool
}

// Cgroup is the machine's cgroup file system.
type Cgroup struct {
	// Version is 1 or 2, or 0 if no cgroup file system is mounted.
	Version     int
	Controllers []string
}

// Disk is the file system of the root directory.
type Disk struct {
	Path string
	// Type is the kind of the file system, such as ext4; "" if unknown.
	Type             string
	Size, Free       uint64 // bytes
	Inodes, InodesOK uint64 // all inodes, and the free ones; 0 if the file system has no limit
	ReadOnly         bool
}

// Clock is the machine's clock.
type Clock struct {
	Now time.Time
	// Synchronized means that the kernel's clock follows a time source (adjtimex(2)).
	Synchronized bool
}

// Network is a route of the machine.
type Network struct {
	Device string
	Prefix netip.Prefix
}
