package idle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-run/berth/bench/proc"
	"github.com/berth-run/berth/bench/side"
	"github.com/berth-run/berth/internal/base/retry"
)

// Cost is the cost of a node's idle pods.
type Cost struct {
	Pods    int     `json:"pods"`
	Seconds float64 `json:"seconds"`
	// CPUPercent is of all processes but the containers: agent with runtime, shim and holders.
	CPUPercent      float64 `json:"cpuPercentOfACore"`
	WorkloadPercent float64 `json:"workloadPercentOfACore"`
	// PSSMB is of all processes but the containers. RSSMB and PrivateMB are of the agent's process.
	PSSMB     float64 `json:"pssMB"`
	RSSMB     float64 `json:"rssMB"`
	PrivateMB float64 `json:"privateMB"`
}

// Costs are costs by the number of pods.
type Costs []Cost

// Settle is how long to wait after a start, until garbage collection and write-back have ended.
const Settle = 15 * time.Second

// goals are the goals by the number of pods: CPU in % of a core, and PSS in MB.
var goals = []struct {
	pods     int
	cpu, pss float64
}{{30, 0.1, 60}, {100, 0.15, 80}, {250, 0.3, 120}}

// Used measures the cost with an agent that has worked before, for the time watch.
func Used(ctx context.Context, agent *side.Berth, watch time.Duration) (all Costs, err error) {
	for _, goal := range goals {
		c, err := measure(ctx, agent, goal.pods, watch)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// Fresh measures the cost with another agent for each number of pods. Their directories are beside dirs.
func Fresh(ctx context.Context, dirs side.Dirs, watch time.Duration) (all Costs, err error) {
	for _, goal := range goals {
		c, err := fresh(ctx, side.Beside(dirs, fmt.Sprintf("i%d", goal.pods)), goal.pods, watch)
		if err != nil {
			return nil, fmt.Errorf("with a fresh agent: %w", err)
		}
		all = append(all, c)
	}
	return all, nil
}

func fresh(ctx context.Context, dirs side.Dirs, pods int, watch time.Duration) (c Cost, err error) {
	agent, err := side.StartFresh(ctx, dirs)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, agent.Close()) }()
	return measure(ctx, agent, pods, watch)
}

func measure(ctx context.Context, agent *side.Berth, pods int, watch time.Duration) (c Cost, err error) {
	c.Pods = pods
	prefix := fmt.Sprintf("idle-%d", pods)
	if _, err := agent.Start(ctx, prefix, pods, side.Shape{}, 0); err != nil {
		return c, err
	}
	if err := retry.Sleep(ctx, Settle); err != nil {
		return c, err
	}
	ownBefore, workloadBefore, err := agent.Group().CPUs()
	if err != nil {
		return c, err
	}
	begin := time.Now()
	if err := retry.Sleep(ctx, watch); err != nil {
		return c, err
	}
	own, workload, err := agent.Group().CPUs()
	if err != nil {
		return c, err
	}
	c.Seconds = time.Since(begin).Seconds()
	c.CPUPercent = (own - ownBefore).Seconds() / c.Seconds * 100
	c.WorkloadPercent = (workload - workloadBefore).Seconds() / c.Seconds * 100
	if c.RSSMB, c.PrivateMB, err = proc.Memory(agent.PID()); err != nil {
		return c, err
	}
	if c.PSSMB, err = agent.Group().PSS(); err != nil {
		return c, err
	}
	_, err = agent.Remove(ctx, prefix, pods, 0)
	return c, err
}

// Results are the costs of the agent that all parts before have used, and those of fresh agents.
type Results struct {
	Used  Costs `json:"used"`
	Fresh Costs `json:"fresh"`
}

// Lines are the lines of the report, none if nothing was measured.
func (r Results) Lines() []string {
	if len(r.Used) == 0 {
		return nil
	}
	lines := []string{
		fmt.Sprintf("\n## Agent, runtime, shim and holders with idle pods, over %.0f s\n", r.Used[0].Seconds),
		"| pods | agent | CPU, % of a core | goal | CPU of containers | PSS, MB | goal | agent's RSS, MB | " +
			"in no file |",
		"|---|---|---|---|---|---|---|---|---|",
	}
	for _, from := range []struct {
		name string
		all  Costs
	}{{"fresh", r.Fresh}, {"of all parts before", r.Used}} {
		for i, c := range from.all {
			lines = append(lines, fmt.Sprintf("| %d | %s | %.2f | %.2f | %.2f | %.1f | %.0f | %.1f | %.1f |",
				c.Pods, from.name, c.CPUPercent, goals[i].cpu, c.WorkloadPercent, c.PSSMB, goals[i].pss, c.RSSMB,
				c.PrivateMB))
		}
	}
	return lines
}
