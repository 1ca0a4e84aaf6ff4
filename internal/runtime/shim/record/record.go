package record

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Version changes when a shim of the version before could not continue from a record. A shim reads records up to its
// own version.
const Version = 2

// The phases of a process. A container that a next shim finds in Creating is removed, and its creation is repeated.
const (
	Creating = "creating"
	Created  = "created"
	Running  = "running"
	Exited   = "exited"
)

// Container has the state that a next shim needs to continue with a container.
type Container struct {
	Version   int               `json:"version"`
	Boot      string            `json:"boot"` // the kernel's ID of the boot, which process IDs belong to
	Namespace string            `json:"namespace"`
	ID        string            `json:"id"`
	Bundle    string            `json:"bundle"`
	Runtime   Runtime           `json:"runtime"`
	Cgroups   map[string]string `json:"cgroups,omitempty"`  // paths by hierarchy
	OOMKills  uint64            `json:"oomKills,omitempty"` // that containerd knows of
	// Log is the path of the log of the first process. It is empty for a container of version 1, whose log containerd
	// writes, and for one without a log.
	Log  string  `json:"log,omitempty"`
	Init Process `json:"init"`
	// Execs has the further processes that have started, by ID.
	Execs map[string]Process `json:"execs,omitempty"`
}

// Runtime names the OCI runtime of a container and its options.
type Runtime struct {
	Binary        string `json:"binary"`
	Root          string `json:"root"`
	SystemdCgroup bool   `json:"systemdCgroup,omitempty"`
	NoPivotRoot   bool   `json:"noPivotRoot,omitempty"`
	NoNewKeyring  bool   `json:"noNewKeyring,omitempty"`
	IOUID         uint32 `json:"ioUID,omitempty"`
	IOGID         uint32 `json:"ioGID,omitempty"`
	Checkpoint    string `json:"checkpoint,omitempty"`
	CriuWork      string `json:"criuWork,omitempty"`
}

// Process describes one process.
type Process struct {
	Phase   string `json:"phase"`
	Pid     int    `json:"pid,omitempty"`
	Started uint64 `json:"started,omitempty"` // clock ticks after the boot, see proc_pid_stat(5)
	Status  uint32 `json:"status,omitempty"`
	// NeverRan says that the first process of a container has ended without a start.
	NeverRan bool `json:"neverRan,omitempty"`
	// Repeated says that the first process was created again because its start was cut short. Pid is 0 until then.
	Repeated bool      `json:"repeated,omitempty"`
	ExitedAt time.Time `json:"exitedAt,omitzero"`
	Stdin    string    `json:"stdin,omitempty"`
	Stdout   string    `json:"stdout,omitempty"`
	Stderr   string    `json:"stderr,omitempty"`
	Terminal bool      `json:"terminal,omitempty"`
	// InputClosed says that CloseIO has ended the standard input.
	InputClosed bool `json:"inputClosed,omitempty"`
	// Console is the process that owns the terminal.
	Console        int    `json:"console,omitempty"`
	ConsoleStarted uint64 `json:"consoleStarted,omitempty"`
}

// HasStarted reports whether the process has started. It may have ended since.
func (p Process) HasStarted() bool {
	return p.Phase == Running || p.Phase == Exited && p.Pid != 0 && !p.NeverRan
}

// File returns the path of the record in a bundle.
func File(bundle string) string { return filepath.Join(bundle, "task.json") }

// Write replaces the file of the record atomically. It does not sync: the file has no meaning after a reboot.
func (r Container) Write() error {
	content, err := json.Marshal(r)
	if err != nil {
		return err
	}
	file := File(r.Bundle)
	if err := os.WriteFile(file+".tmp", content, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".tmp", file)
}

// Read reads a record. A record of a later version is an error, and so is a file that names no container.
func Read(file string) (Container, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return Container{}, err
	}
	var r Container
	if err := json.Unmarshal(content, &r); err != nil {
		return Container{}, fmt.Errorf("read %s: %w", file, err)
	}
	if r.ID == "" {
		return Container{}, fmt.Errorf("read %s: it names no container", file)
	}
	if r.Version > Version {
		return Container{}, fmt.Errorf("read %s: version %d is newer than this shim's %d", file, r.Version, Version)
	}
	return r, nil
}
