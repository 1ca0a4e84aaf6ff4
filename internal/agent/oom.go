package agent

import (
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// lowestOOMScoreAdj is the lowest oom_score_adj that a runtime with this
// process's capabilities can give a container; nil: any. Lowering it needs
// CAP_SYS_RESOURCE (proc_pid_oom_score_adj(5)). A runtime in a process of its
// own is taken to have what this one has.
func lowestOOMScoreAdj(log *slog.Logger) (*int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil, err
	}
	effective, err := effectiveCapabilities(string(status))
	if err != nil || effective&(1<<unix.CAP_SYS_RESOURCE) != 0 {
		return nil, err
	}
	text, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return nil, err
	}
	own, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("read /proc/self/oom_score_adj: %w", err)
	}
	log.Info("no CAP_SYS_RESOURCE: oom_score_adj of containers is never below this process's own", "own", own)
	return &own, nil
}

func effectiveCapabilities(status string) (uint64, error) {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, "CapEff:"); ok {
			return strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		}
	}
	return 0, fmt.Errorf("read /proc/self/status: no CapEff")
}
