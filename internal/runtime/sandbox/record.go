package sandbox

import (
	"time"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/runtime/sandbox/holder"
)

// format is the format of records on disk.
var format = checkpoint.Format{Version: 1}

// record has the facts about a sandbox that a later agent needs. Records need not survive a reboot: no holder does.
type record struct {
	Holder  holder.Identity
	Created time.Time
	// NetworkPath is the file of the network namespace, empty in the host's network.
	NetworkPath string `json:",omitzero"`
	// CgroupParent is the pod's cgroup, as the CRI client has named it.
	CgroupParent string `json:",omitzero"`
	// Systemd says that systemd made the sandbox's cgroup.
	Systemd bool `json:",omitzero"`
	// Label is the SELinux label that is reserved for the sandbox.
	Label string `json:",omitzero"`
}
