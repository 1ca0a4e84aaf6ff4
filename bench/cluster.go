package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-run/berth/bench/joined"
	"github.com/berth-run/berth/bench/side"
)

// joinedCosts has the costs of nodes of a real cluster.
type joinedCosts struct {
	Cluster clusterCost `json:"cluster"`
	Watches watchCost   `json:"watches"`
	Nodes   joined.Many `json:"nodes"`
}

func (c joinedCosts) text(p *page) {
	c.Cluster.text(p)
	c.Watches.text(p)
	for _, line := range c.Nodes.Lines() {
		p.line("%s", line)
	}
}

// nodes measures many agents in this process, beside one kubelet.
func (b *bench) nodes(ctx context.Context) (err error) {
	b.results.Joined.Nodes, err = joined.MeasureMany(ctx, side.Binary, b.idleWatch)
	return err
}

// clusterCost has the costs of a node of a real cluster with Berth, and with the kubelet for comparison.
type clusterCost struct {
	Pods        int        `json:"pods"`
	Rounds      int        `json:"rounds"`
	IdleSeconds float64    `json:"idleSeconds"`
	Berth       clusterUse `json:"berth"`
	Kubelet     clusterUse `json:"kubelet"`
}

// clusterUse is the cost of one node.
type clusterUse struct {
	// Running is from the creation of the first pod until a watch shows the last one as Running.
	Running      summary        `json:"runningMs"`
	PodsASecond  float64        `json:"podsPerSecond"`
	Requests     map[string]int `json:"requestsForStarts"` // in all rounds
	IdleRequests map[string]int `json:"requestsIdle"`
	Agent        processUse     `json:"agent"`
	Runtime      processUse     `json:"runtime,omitzero"` // zero if the agent contains the runtime
}

// processUse is the CPU time and memory of one process of a node.
type processUse struct {
	StartCPU  float64 `json:"cpuMsPerPod"`
	IdleCPU   float64 `json:"cpuIdlePercentOfACore"`
	RSSMB     float64 `json:"rssMB"`
	PrivateMB float64 `json:"privateMB"`
}

func (u processUse) plus(v processUse) processUse {
	return processUse{StartCPU: u.StartCPU + v.StartCPU, IdleCPU: u.IdleCPU + v.IdleCPU, RSSMB: u.RSSMB + v.RSSMB,
		PrivateMB: u.PrivateMB + v.PrivateMB}
}

// watchCost is the memory for watches of ConfigMaps and Secrets that pods mount.
type watchCost struct {
	Berth   []joined.Watched `json:"berth,omitempty"`
	Kubelet []joined.Watched `json:"kubelet,omitempty"`
}

// cluster measures Berth and the kubelet as two nodes of a real cluster.
func (b *bench) cluster(ctx context.Context) error {
	c := clusterCost{Pods: b.burst, Rounds: b.rounds, IdleSeconds: b.idleWatch.Seconds()}
	berth, kubelet, err := b.joined(ctx, joined.Options{Pods: c.Pods, Rounds: c.Rounds, Idle: b.idleWatch})
	if err != nil {
		return err
	}
	c.Berth, c.Kubelet = c.use(berth), c.use(kubelet)
	b.results.Joined.Cluster = c
	return nil
}

// watches measures the memory that watched ConfigMaps and Secrets need. Each object has a watch of its own.
func (b *bench) watches(ctx context.Context) error {
	berth, kubelet, err := b.joined(ctx, joined.Options{Objects: []int{0, 50, 150}})
	b.results.Joined.Watches = watchCost{Berth: berth.Watched, Kubelet: kubelet.Watched}
	return err
}

func (b *bench) joined(ctx context.Context, o joined.Options) (berth, kubelet joined.Result, err error) {
	if o.Dir, err = os.MkdirTemp("", "bj"); err != nil {
		return berth, kubelet, err
	}
	if o.Binary, err = filepath.Abs(side.Binary); err != nil {
		return berth, kubelet, err
	}
	if o.Archive, err = filepath.Abs(side.Archive); err != nil {
		return berth, kubelet, err
	}
	if berth, kubelet, err = joined.Measure(ctx, o); err != nil {
		return berth, kubelet, err // keep the directory: a process may still use it
	}
	return berth, kubelet, os.RemoveAll(o.Dir)
}

func (c clusterCost) use(r joined.Result) clusterUse {
	process := func(u joined.Use) processUse {
		return processUse{
			StartCPU: u.Start.Seconds() * 1000 / float64(c.Pods*c.Rounds),
			IdleCPU:  u.Idle.Seconds() / c.IdleSeconds * 100,
			RSSMB:    u.RSS, PrivateMB: u.Private,
		}
	}
	u := clusterUse{Running: summarise(r.Took), Requests: r.Starts, IdleRequests: r.Idle, Agent: process(r.Agent),
		Runtime: process(r.Runtime)}
	u.PodsASecond = float64(c.Pods) / u.Running.P50 * 1000
	return u
}

func (c clusterCost) text(p *page) {
	if c.Pods == 0 {
		return
	}
	b, k := c.Berth, c.Kubelet
	p.line("\n## A node of a real cluster: %d pods at once, bound by its scheduler, %d times\n", c.Pods, c.Rounds)
	p.line(
		"Berth has its runtime within; the kubelet has the machine's containerd, a process of its own. The control " +
			"plane is on the same CPUs.\n")
	p.line("| what | Berth | kubelet | ratio |")
	p.line("|---|---|---|---|")
	row := func(what, format string, ours, theirs float64) {
		p.line("| %s | "+format+" | "+format+" | **%.2f** |", what, ours, theirs, ratio(ours, theirs))
	}
	row("created to all Running in a watch, p50, ms", "%.0f", b.Running.P50, k.Running.P50)
	row("pods a second", "%.1f", b.PodsASecond, k.PodsASecond)
	row("API requests for a pod's start", "%.1f", c.each(b.Requests), c.each(k.Requests))
	row(fmt.Sprintf("API requests in an idle minute, with %d pods", c.Pods), "%.1f", c.aMinute(b), c.aMinute(k))
	for _, of := range []struct {
		what         string
		ours, theirs processUse
	}{{"agent", b.Agent, k.Agent}, {"agent and runtime", b.Agent, k.Agent.plus(k.Runtime)}} {
		row(of.what+": CPU until all run, ms a pod", "%.0f", of.ours.StartCPU, of.theirs.StartCPU)
		row(of.what+": CPU when idle, % of a core", "%.2f", of.ours.IdleCPU, of.theirs.IdleCPU)
		row(of.what+": RSS, MB", "%.1f", of.ours.RSSMB, of.theirs.RSSMB)
		row(of.what+": of that in no file, MB", "%.1f", of.ours.PrivateMB, of.theirs.PrivateMB)
	}
	p.line("\nRequests for a pod's start: Berth %s; the kubelet %s.", c.kinds(b.Requests), c.kinds(k.Requests))
}

// each is the mean number of requests for one pod's start.
func (c clusterCost) each(requests map[string]int) float64 {
	return float64(sum(requests)) / float64(c.Pods*c.Rounds)
}

func (c clusterCost) aMinute(u clusterUse) float64 {
	return float64(sum(u.IdleRequests)) / c.IdleSeconds * 60
}

// kinds lists the kinds of requests with their number for each pod. It omits kinds with at most 0.01 for each pod.
func (c clusterCost) kinds(requests map[string]int) string {
	var all []string
	for _, what := range slices.Sorted(maps.Keys(requests)) {
		if n := float64(requests[what]) / float64(c.Pods*c.Rounds); n > 0.01 {
			all = append(all, fmt.Sprintf("%s %.2f", what, n))
		}
	}
	return strings.Join(all, ", ")
}

func sum(counts map[string]int) int {
	total := 0
	for _, n := range counts {
		total += n
	}
	return total
}

func (w watchCost) text(p *page) {
	if len(w.Berth) == 0 {
		return
	}
	p.line("\n## ConfigMaps and Secrets of 1 KiB that a pod mounts, each watched by itself\n")
	p.line("| node | objects | watches | agent's RSS, MB | of that in no file, MB | KB an object |")
	p.line("|---|---|---|---|---|---|")
	for _, n := range []struct {
		name string
		rows []joined.Watched
	}{{"Berth", w.Berth}, {"kubelet", w.Kubelet}} {
		for _, r := range n.rows {
			each := "-"
			if more := r.Objects - n.rows[0].Objects; more > 0 {
				each = fmt.Sprintf("%.0f", (r.Private-n.rows[0].Private)*1000/float64(more))
			}
			p.line("| %s | %d | %d | %.1f | %.1f | %s |", n.name, r.Objects, r.Watches, r.RSS, r.Private, each)
		}
	}
}
