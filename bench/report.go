package main

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

type results struct {
	Date    string     `json:"date"`
	Machine string     `json:"machine"`
	One     comparison `json:"onePod"`
	Several comparison `json:"severalContainers"`
	Burst   burst      `json:"burst"`
	Idle    idleCost   `json:"idle"`
}

// summary of some durations, in milliseconds.
type summary struct {
	N   int     `json:"n"`
	Min float64 `json:"min"`
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	Max float64 `json:"max"`
}

type comparison struct {
	Containers int     `json:"containers,omitempty"`
	Berth      summary `json:"berth"`
	Floor      summary `json:"floor"`
	Ratio      float64 `json:"ratio"`

	berth, floor []time.Duration
}

type burst struct {
	Pods  int             `json:"pods"`
	Berth summary         `json:"berth"`
	Floor map[int]summary `json:"floor"` // by concurrency
	Best  int             `json:"bestConcurrency"`
	Ratio float64         `json:"ratio"`
	// BerthCPU and FloorCPU are seconds of each side's process for each burst.
	BerthCPU []float64 `json:"berthCPUSeconds"`
	FloorCPU []float64 `json:"floorCPUSeconds"`
}

// idleCost of the agent's process with the runtime in it; shims are not in it.
type idleCost struct {
	Pods       int     `json:"pods"`
	Seconds    float64 `json:"seconds"`
	CPUPercent float64 `json:"cpuPercentOfACore"`
	RSSMB      float64 `json:"rssMB"`
	PrivateMB  float64 `json:"privateMB"`
}

func (c *comparison) summarise() {
	c.Berth, c.Floor = summarise(c.berth), summarise(c.floor)
	c.Ratio = ratio(c.Berth.P50, c.Floor.P50)
}

func mean(all []float64) float64 {
	sum := 0.0
	for _, v := range all {
		sum += v
	}
	return sum / float64(max(1, len(all)))
}

func ratio(a, b float64) float64 { return float64(int(a/b*1000+0.5)) / 1000 }

func summarise(times []time.Duration) summary {
	sorted := slices.Sorted(slices.Values(times))
	at := func(q float64) float64 {
		i := int(q*float64(len(sorted)-1) + 0.5)
		return float64(sorted[i].Microseconds()) / 1000
	}
	return summary{N: len(sorted), Min: at(0), P50: at(0.5), P90: at(0.9), Max: at(1)}
}

// machine names the kind of machine, not the machine.
func machine() string {
	cgroups := "cgroup v1"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		cgroups = "cgroup v2"
	}
	model := "unknown CPU"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		release = []byte("unknown")
	}
	major, _, _ := strings.Cut(strings.TrimSpace(string(release)), "-")
	return fmt.Sprintf("virtual machine, %d CPUs (%s), Linux %s, %s", runtime.NumCPU(), model, major, cgroups)
}

func (r results) text() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Results\n")
	line("%s, on %s. How to read it: README.md beside this file.\n", r.Date, r.Machine)
	line("## From the manifest to the container's first instruction, in ms\n")
	line("| what | Berth p50 (min, p90) | floor p50 (min, p90) | ratio | goal |")
	line("|---|---|---|---|---|")
	row := func(what string, c comparison, goal string) {
		line("| %s, n=%d | %.1f (%.1f, %.1f) | %.1f (%.1f, %.1f) | **%.2f** | %s |", what, c.Berth.N,
			c.Berth.P50, c.Berth.Min, c.Berth.P90, c.Floor.P50, c.Floor.Min, c.Floor.P90, c.Ratio, goal)
	}
	row("one pod of one container", r.One, "1.10")
	row(fmt.Sprintf("one pod of %d containers, to the last one", r.Several.Containers), r.Several, "1.00")
	best := r.Burst.Floor[r.Burst.Best]
	row(fmt.Sprintf("burst of %d pods, to the last one (floor at its best concurrency, %d)", r.Burst.Pods, r.Burst.Best),
		comparison{Berth: r.Burst.Berth, Floor: best, Ratio: r.Burst.Ratio}, "1.10")
	line("\nThe floor's burst at each concurrency, p50 in ms:\n")
	line("| concurrency | makespan |")
	line("|---|---|")
	for _, c := range slices.Sorted(maps.Keys(r.Burst.Floor)) {
		line("| %d | %.0f |", c, r.Burst.Floor[c].P50)
	}
	line("\nCPU time of the process, agent and runtime or runtime alone, for a burst: %.2f s and %.2f s (means).", mean(r.Burst.BerthCPU), mean(r.Burst.FloorCPU))
	line("\n## Idle, with %d running pods, over %.0f s\n", r.Idle.Pods, r.Idle.Seconds)
	line("The agent's process with the runtime in it, without the shims.\n")
	line("| what | measured | goal |")
	line("|---|---|---|")
	line("| CPU, %% of a core | %.2f | 0.20 |", r.Idle.CPUPercent)
	line("| RSS, MB | %.1f | 90 |", r.Idle.RSSMB)
	line("| private, MB | %.1f | 45 |", r.Idle.PrivateMB)
	return b.String()
}
