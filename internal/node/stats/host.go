package stats

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berth-run/berth/internal/base/usage"
)

// BootTime returns when the machine was booted, from proc_stat(5). It is zero if that is unknown.
func BootTime(host string) time.Time {
	text, err := os.ReadFile(filepath.Join(host, "proc/stat"))
	if err != nil {
		return time.Time{}
	}
	for line := range bytes.Lines(text) {
		if value, ok := strings.CutPrefix(string(line), "btime "); ok {
			if n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64); err == nil {
				return time.Unix(n, 0)
			}
		}
	}
	return time.Time{}
}

// kilobytes reads a value of proc_meminfo(5) or proc_pid_status(5) and returns it in bytes. It is 0 if there is none.
func kilobytes(path, name string) uint64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		fields := strings.Fields(string(line))
		if len(fields) >= 2 && fields[0] == name+":" {
			n, _ := strconv.ParseUint(fields[1], 10, 64)
			return n << 10
		}
	}
	return 0
}

// swapTotal returns all swap of the machine in bytes.
func (s *Stats) swapTotal() uint64 {
	return kilobytes(filepath.Join(s.Host, "proc/meminfo"), "SwapTotal")
}

// ProcessLimit returns how many processes and threads there are and may be. The fourth field of proc_loadavg(5) counts
// them. Both pid_max and threads-max limit them (proc_sys_kernel(5)).
func ProcessLimit(host string, now time.Time) (*statsapi.RlimitStats, error) {
	most := int64(math.MaxInt64)
	for _, name := range []string{"pid_max", "threads-max"} {
		text, err := os.ReadFile(filepath.Join(host, "proc/sys/kernel", name))
		if err != nil {
			return nil, err
		}
		limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		most = min(most, limit)
	}
	text, err := os.ReadFile(filepath.Join(host, "proc/loadavg"))
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 4 {
		return nil, fmt.Errorf("read loadavg: unexpected content %q", text)
	}
	_, all, _ := strings.Cut(fields[3], "/")
	count, err := strconv.ParseInt(all, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("read loadavg: %w", err)
	}
	return &statsapi.RlimitStats{Time: metav1.NewTime(now), MaxPID: &most, NumOfRunningProcesses: &count}, nil
}

func psi(p *cgroups.PSIStats) *statsapi.PSIStats {
	data := func(d cgroups.PSIData) statsapi.PSIData {
		return statsapi.PSIData{Total: d.Total * uint64(time.Microsecond), Avg10: d.Avg10, Avg60: d.Avg60,
			Avg300: d.Avg300}
	}
	return &statsapi.PSIStats{Full: data(p.Full), Some: data(p.Some)}
}

// networkStats returns the counters of all interfaces. The unnamed counters at the top belong to eth0, or to the first
// interface if there is no eth0.
func networkStats(all []usage.Traffic, now time.Time) *statsapi.NetworkStats {
	if len(all) == 0 {
		return nil
	}
	n := &statsapi.NetworkStats{Time: metav1.NewTime(now)}
	for _, t := range all {
		one := statsapi.InterfaceStats{Name: t.Name, RxBytes: new(t.RxBytes), RxErrors: new(t.RxErrors),
			TxBytes: new(t.TxBytes), TxErrors: new(t.TxErrors)}
		if t.Name == "eth0" || n.Name == "" {
			n.InterfaceStats = one
		}
		n.Interfaces = append(n.Interfaces, one)
	}
	return n
}

// number reads a field of a file. It is 0 if the field is missing or "max".
func number(path string, field int) float64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if field >= len(fields) {
		return 0
	}
	n, err := strconv.ParseFloat(fields[field], 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// sharesOf converts a cgroup v2 weight (1 to 10000) to v1 shares (2 to 262144) as cAdvisor does: the inverse of
// KEP-2254.
func sharesOf(weight float64) float64 {
	if weight == 0 {
		return 0
	}
	return 2 + float64(int64((weight-1)*262142/9999))
}
