package child

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Stat has fields of a process from proc_pid_stat(5).
type Stat struct {
	State   string
	Parent  int
	Started uint64          // clock ticks after the boot
	Status  unix.WaitStatus // of a zombie
}

// ReadStat reads the stat of a process.
func ReadStat(pid int) (Stat, error) {
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return Stat{}, err
	}
	// The name of the program, in parentheses, may contain anything.
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
	const first, stateField, parentField, startedField, statusField = 3, 3, 4, 22, 52
	if len(fields) <= statusField-first {
		return Stat{}, fmt.Errorf("read stat of process %d: %d fields", pid, len(fields))
	}
	parent, failed := strconv.Atoi(fields[parentField-first])
	started, failed2 := strconv.ParseUint(fields[startedField-first], 10, 64)
	status, failed3 := strconv.ParseUint(fields[statusField-first], 10, 32)
	if err := errors.Join(failed, failed2, failed3); err != nil {
		return Stat{}, fmt.Errorf("read stat of process %d: %w", pid, err)
	}
	return Stat{fields[stateField-first], parent, started, unix.WaitStatus(status)}, nil
}
