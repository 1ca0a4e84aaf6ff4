package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth/bench/idle"
	"github.com/berth-run/berth/bench/placement"
	"github.com/berth-run/berth/bench/scale"
	"github.com/berth-run/berth/bench/side"
)

type results struct {
	Date    string       `json:"date"`
	Machine string       `json:"machine"`
	One     comparison   `json:"onePod"`
	Several comparison   `json:"severalContainers"`
	Bursts  burstResults `json:"bursts"`
	Stock   besideStock  `json:"besideStockContainerd"`
	// Create is how long runc create alone takes.
	Create    summary           `json:"runcCreate"`
	Ending    ending            `json:"ending"`
	Restart   restarts          `json:"restart"`
	Readiness readiness         `json:"readiness"`
	Probes    probeCost         `json:"execProbes"`
	Objects   comparison        `json:"objectVolumes"`
	Update    update            `json:"configMapUpdate"`
	Idle      idle.Results      `json:"idleWithPods"`
	BinaryMB  float64           `json:"binaryMB"`
	Placement placement.Results `json:"placement"`
	Scale     scale.Result      `json:"scale"`
	Statuses  statusRates       `json:"statuses"`
	Joined    joinedCosts       `json:"joined"`
	// Alone has the dates of parts that were measured in separate runs with -only and -keep. It also names the machine
	// if it was another one.
	Alone map[string]string `json:"measuredAlone,omitempty"`
}

// keep reads the results of earlier runs, so that the new results replace only the parts that are measured now. Parts
// that another machine has measured name it.
func (r *results) keep(dir string, measured []string) error {
	raw, err := os.ReadFile(filepath.Join(dir, "results.json"))
	if err != nil {
		return err
	}
	var before results
	if err := json.Unmarshal(raw, &before); err != nil {
		return fmt.Errorf("read %s: %w", filepath.Join(dir, "results.json"), err)
	}
	if before.Alone == nil {
		before.Alone = map[string]string{}
	}
	if before.Machine != r.Machine {
		for _, part := range partNames() {
			if date := cmp.Or(before.Alone[part], before.Date); !strings.Contains(date, ", on ") {
				before.Alone[part] = date + ", on " + before.Machine
			}
		}
		before.Date, before.Machine = r.Date, r.Machine
	}
	for _, part := range measured {
		before.Alone[part] = r.Date
		if r.Date == before.Date {
			delete(before.Alone, part)
		}
	}
	*r = before
	return nil
}

// summary has the quantiles of some durations in milliseconds.
type summary struct {
	N   int     `json:"n"`
	Min float64 `json:"min"`
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// comparison is a measurement of Berth, of the floor, and sometimes of runc alone. Ratio is the ratio of the medians of
// Berth and the floor. BareRatio is the ratio of Berth and runc.
type comparison struct {
	Containers int     `json:"containers,omitempty"`
	Berth      summary `json:"berth"`
	Floor      summary `json:"floor"`
	Bare       summary `json:"bare,omitzero"`
	Ratio      float64 `json:"ratio"`
	BareRatio  float64 `json:"bareRatio,omitempty"`

	berth, floor, bare []time.Duration
}

func (c *comparison) summarise() {
	c.Berth, c.Floor = summarise(c.berth), summarise(c.floor)
	c.Ratio = ratio(c.Berth.P50, c.Floor.P50)
	if len(c.bare) > 0 {
		c.Bare = summarise(c.bare)
		c.BareRatio = ratio(c.Berth.P50, c.Bare.P50)
	}
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
	return summary{N: len(sorted), Min: at(0), P50: at(0.5), P90: at(0.9), P99: at(0.99), Max: at(1)}
}

// machine describes the kind of machine, without its name.
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

// page collects the lines of RESULTS.md.
type page struct{ strings.Builder }

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

func (r results) text() string {
	p := &page{}
	p.line("# Results\n")
	p.line("%s, on %s. How to read it: README.md beside this file.", r.Date, r.Machine)
	for _, part := range slices.Sorted(maps.Keys(r.Alone)) {
		p.line("The part `%s` is of a run of its own, on %s.", part, r.Alone[part])
	}
	if r.One.Berth.N+r.Several.Berth.N+r.Bursts.Start.Berth.N > 0 {
		p.line("\n## From the manifest to the container's first instruction, in ms\n")
		startHeader(p)
		r.One.bareRow(p, "one pod of one container", "1.60")
		r.Several.bareRow(p,
			fmt.Sprintf("one pod of %d containers, to the last one (runc: one container)", r.Several.Containers),
			"3.00")
		if r.Bursts.Start.Pods > 0 {
			r.Bursts.Start.row(p, "1.60")
			r.Bursts.LargeStart.row(p, "1.60")
		}
	}
	if r.Bursts.Start.Pods > 0 {
		burstCosts(p, r.Bursts.Start, r.Bursts.LargeStart)
		p.line("\n## From the deletion to nothing left, in ms\n")
		p.line("| what | Berth p50 (min, p99) | CRI calls p50 (min, p99) | ratio | goal |")
		p.line("|---|---|---|---|---|")
		for _, b := range []burst{r.Bursts.End, r.Bursts.LargeEnd} {
			b.comparison().row(p, fmt.Sprintf("%d pods with a grace period of 0, to the last one", b.Pods))
		}
		burstDetails(p, r.Bursts.Start, r.Bursts.End)
	}
	r.Stock.text(p)
	r.Ending.text(p, r.Create)
	r.Restart.text(p)
	r.Readiness.text(p)
	r.Probes.text(p)
	objectRows(p, r)
	for _, line := range r.Idle.Lines() {
		p.line("%s", line)
	}
	if r.BinaryMB > 0 {
		p.line("\nThe binary has %.1f MB (goal: 80).", r.BinaryMB)
	}
	placementText(p, r.Placement)
	for _, line := range r.Scale.Lines() {
		p.line("%s", line)
	}
	r.Statuses.text(p)
	r.Joined.text(p)
	return p.String()
}

// measureBinary records the size of the program.
func (r *results) measureBinary() error {
	info, err := os.Stat(side.Binary)
	if err != nil {
		return err
	}
	r.BinaryMB = float64(info.Size()) / 1e6
	return nil
}

func (r results) write(dir string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "results.json"), append(raw, '\n'), 0o644),
		os.WriteFile(filepath.Join(dir, "RESULTS.md"), []byte(r.text()), 0o644),
		r.Joined.Nodes.Write(dir),
	)
}
