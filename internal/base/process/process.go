package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// IDs returns the IDs of all processes. Some may end meanwhile. It reads only the directory /proc: filepath.Glob with a
// pattern such as /proc/*/comm lists the files of each process too, which takes most of the time.
func IDs() ([]int, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer func() { _ = proc.Close() }() // it is only read
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var ids []int
	for _, name := range names {
		if id, err := strconv.Atoi(name); err == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Path is the path of a file of a process, such as comm.
func Path(id int, file string) string { return filepath.Join("/proc", strconv.Itoa(id), file) }
