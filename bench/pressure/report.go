package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// results has the times of evictions, and the costs of looking for pressure and for pods that exceed their limits.
type results struct {
	Machine string
	Loads   [2]string // the load of the machine over a minute
	// Berth and Kubelet say how hogs ended.
	Berth, Kubelet ends
	// Idle is the CPU of an agent with thresholds and limits of storage, and Blind of an agent without them, in percent
	// of a core.
	Pods    int
	Seconds float64
	Idle    float64
	Blind   float64
	// WalkMS is the time of a walk of Files files. QuotaUS is the time of reading their project quota, or 0 if the
	// kernel has no quotas.
	Files   int
	WalkMS  float64
	QuotaUS float64
}

// ends says how hogs ended.
type ends struct {
	// P50 to Max are the times in ms from the crossing of the threshold to the last step of a hog.
	P50, P90, P99 float64
	Min, Max      float64
	// Evicted and OOMKilled are how many hogs the agent and the kernel ended first. Early is how many hogs the agent
	// evicted before they crossed the threshold.
	Evicted, OOMKilled, Early int
}

func (h hogs) ends() ends {
	e := ends{Evicted: len(h.kills), OOMKilled: h.oomKilled, Early: h.early}
	if all := slices.Sorted(slices.Values(h.kills)); len(all) > 0 {
		at := func(q float64) float64 { return float64(all[int(q*float64(len(all)-1)+0.5)].Microseconds()) / 1000 }
		e.P50, e.P90, e.P99, e.Min, e.Max = at(0.5), at(0.9), at(0.99), at(0), at(1)
	}
	return e
}

// runs is the number of hogs.
func (e ends) runs() int { return e.Evicted + e.OOMKilled + e.Early }

// row is a row of the table.
func (e ends) row(who string) string {
	times := "- | - | - | -"
	if e.Evicted > 0 {
		times = fmt.Sprintf("%.1f | %.1f | %.1f | %.1f, %.1f", e.P50, e.P90, e.P99, e.Min, e.Max)
	}
	return fmt.Sprintf("| %s | %s | %d | %d | %d |", who, times, e.Evicted, e.Early, e.OOMKilled)
}

// evict measures how hogs end.
func (r *results) evict(ctx context.Context, o options) error {
	return inDir(func(dir string) error {
		h, err := hunt(ctx, filepath.Join(dir, "a"), o.hogs) // the agent's program lies beside its root
		if err != nil {
			return err
		}
		r.Berth = h.ends()
		if o.neverOOM && r.Berth.OOMKilled > 0 {
			return fmt.Errorf("the kernel's OOM killer ended %d of %d pods before they were evicted",
				r.Berth.OOMKilled, o.hogs)
		}
		return nil
	})
}

// evictOnKubelet measures how hogs end on a node of the upstream kubelet.
func (r *results) evictOnKubelet(ctx context.Context, o options) error {
	return inDir(func(dir string) error {
		h, err := huntKubelet(ctx, dir, o.kubelet)
		r.Kubelet = h.ends()
		return err
	})
}

// look measures the cost of looking for pressure.
func (r *results) look(ctx context.Context, o options) error {
	r.Pods, r.Seconds, r.Files = 10, o.watch.Seconds(), o.files
	return inDir(func(dir string) (err error) {
		if r.Idle, err = idle(ctx, filepath.Join(dir, "i"), "", r.Pods, o.watch); err != nil {
			return fmt.Errorf("measure an idle agent: %w", err)
		}
		if r.Blind, err = idle(ctx, filepath.Join(dir, "n"), blind, r.Pods, o.watch); err != nil {
			return fmt.Errorf("measure an idle agent without thresholds: %w", err)
		}
		walked, counted, err := walk(ctx, filepath.Join(dir, "files"), r.Files)
		r.WalkMS, r.QuotaUS = walked.Seconds()*1e3, counted.Seconds()*1e6
		return err
	})
}

// inDir runs a measurement in a directory of its own.
func inDir(measure func(dir string) error) error {
	dir, err := os.MkdirTemp("", "be") // short: unix sockets lie below it
	if err != nil {
		return err
	}
	if err := measure(dir); err != nil {
		return err // a process may still use the directory
	}
	return os.RemoveAll(dir)
}

// text is the page with the results.
func (r results) text() string {
	var page strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&page, format+"\n", args...) }
	line("# Eviction\n")
	line("%s, with a load of %s at the start and %s at the end.\nmake bench writes this page.", r.Machine, r.Loads[0],
		r.Loads[1])
	if r.Berth.runs()+r.Kubelet.runs() > 0 {
		line("\n## Pods that take 200 MB of memory a second\n")
		line("All pods may use 768 MiB, and the threshold is 100 MiB: the kernel ends a pod half a second\n" +
			"after it has crossed the threshold. The times are from the crossing to the last step of an\n" +
			"evicted pod, in ms. The goal is 250 ms at p99.\n")
		line("| agent | p50 | p90 | p99 | min, max | evicted | evicted too early | killed by the kernel first |")
		line("|---|---|---|---|---|---|---|---|")
		if r.Berth.runs() > 0 {
			line("%s", r.Berth.row("Berth"))
		}
		if r.Kubelet.runs() > 0 {
			line("%s", r.Kubelet.row("the kubelet, on containerd"))
		}
	}
	if r.Pods > 0 {
		line("\n## The cost of looking for pressure\n")
		line("| what | measured |")
		line("|---|---|")
		line("| %d idle pods with a sizeLimit, default thresholds, for %.0f s, CPU of the agent, %% of a core | %.2f |",
			r.Pods, r.Seconds, r.Idle)
		line("| the same without thresholds and limits | %.2f |", r.Blind)
		line("| walk of an emptyDir with %d files, ms | %.1f |", r.Files, r.WalkMS)
		quota := fmt.Sprintf("%.1f", r.QuotaUS)
		if r.QuotaUS == 0 {
			quota = "not measured: the kernel or the file system has none"
		}
		line("| the same by its project quota, µs | %s |", quota)
	}
	return page.String()
}
