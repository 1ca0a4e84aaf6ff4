package scale

import (
	"fmt"
	"slices"
	"time"
)

// Result is the result for all numbers of pods.
type Result struct {
	Changes int     `json:"changes"`
	Seconds float64 `json:"idleSeconds"`
	Rows    []Row   `json:"rows"`
}

// Row is the result for a number of pods.
type Row struct {
	Pods int `json:"pods"`
	// Idle is the CPU time of the agent while nothing happens, in percent of a core.
	Idle float64 `json:"idlePercentOfACore"`
	// RSS and Private are the agent's memory in MB (package proc).
	RSS     float64 `json:"rssMB"`
	Private float64 `json:"privateMB"`
	// Start is the time from a manifest to its StartContainer. Exit is the time from the end of a container to the
	// CreateContainer of the next one.
	Start Change `json:"start"`
	Exit  Change `json:"exit"`
}

// Change is a kind of change: how long it took, and the CPU time of the agent for one, in ms.
type Change struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	CPU float64 `json:"cpu"`
}

func changeOf(times []time.Duration, cpu time.Duration) Change {
	sorted := slices.Sorted(slices.Values(times))
	at := func(q float64) float64 { return ms(sorted[int(q*float64(len(sorted)-1)+0.5)]) }
	return Change{P50: at(0.5), P99: at(0.99), CPU: ms(cpu) / float64(len(sorted))}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (c Change) String() string { return fmt.Sprintf("%.1f (%.1f) | %.1f", c.P50, c.P99, c.CPU) }

// Lines are the lines of the report, or none without a result.
func (r Result) Lines() (lines []string) {
	if len(r.Rows) == 0 {
		return nil
	}
	lines = append(lines,
		"\n## One agent with many pods on the fake runtime, which do not change, while others do\n",
		fmt.Sprintf("%d pods start and %d containers end, one after the other. Times in ms, p50 (p99). CPU is the "+
			"agent's for one change. Idle is over %.0f s.\n", r.Changes, r.Changes, r.Seconds),
		"| pods | idle, % of a core | RSS, MB | of that in no file, MB | manifest to StartContainer | CPU, ms | "+
			"exit to the next CreateContainer | CPU, ms |",
		"|---|---|---|---|---|---|---|---|")
	for _, row := range r.Rows {
		lines = append(lines, fmt.Sprintf("| %d | %.2f | %.1f | %.1f | %s | %s |", row.Pods, row.Idle, row.RSS,
			row.Private, row.Start, row.Exit))
	}
	return lines
}
