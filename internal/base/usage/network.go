package usage

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Traffic has the counters of one network interface.
type Traffic struct {
	Name                                  string
	RxBytes, RxPackets, RxErrors, RxDrops uint64
	TxBytes, TxPackets, TxErrors, TxDrops uint64
}

// Network reads the counters of the network namespace of a process, see proc_pid_net(5). It skips the loopback
// interface.
func Network(host string, pid int) ([]Traffic, error) {
	f, err := os.Open(filepath.Join(host, "proc", strconv.Itoa(pid), "net/dev"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was opened for reading only
	var all []Traffic
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, rest, ok := strings.Cut(lines.Text(), ":")
		name = strings.TrimSpace(name)
		fields := strings.Fields(rest)
		if !ok || name == "lo" || len(fields) < 12 {
			continue
		}
		n := make([]uint64, len(fields))
		for i, field := range fields {
			if n[i], err = strconv.ParseUint(field, 10, 64); err != nil {
				return nil, fmt.Errorf("read the counters of interface %s: %w", name, err)
			}
		}
		all = append(all, Traffic{
			Name: name, RxBytes: n[0], RxPackets: n[1], RxErrors: n[2], RxDrops: n[3],
			TxBytes: n[8], TxPackets: n[9], TxErrors: n[10], TxDrops: n[11],
		})
	}
	return all, nil
}
