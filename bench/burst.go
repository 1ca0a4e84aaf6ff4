package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/berth-run/berth/bench/side"
)

// burst is the time that many pods need together to start, or to end.
type burst struct {
	Pods  int        `json:"pods"`
	Berth burstTimes `json:"berth"`
	// Floor and Bare are by concurrency. The best one counts.
	Floor map[int]burstTimes `json:"floor"`
	Bare  map[int]burstTimes `json:"bare,omitempty"`
}

// burstResults are the starts and ends of the small and of the large bursts.
type burstResults struct {
	Start      burst `json:"start"`
	End        burst `json:"end"`
	LargeStart burst `json:"largeStart"`
	LargeEnd   burst `json:"largeEnd"`
}

// burstTimes has the times of a side for a burst, and its CPU time.
type burstTimes struct {
	summary
	// CPU is the CPU time in seconds of all processes of the side, its containers included: a mean of all bursts.
	CPU float64 `json:"cpuSeconds"`

	took []time.Duration
	cpu  []float64
}

func (t *burstTimes) add(took, cpu time.Duration) {
	t.took, t.cpu = append(t.took, took), append(t.cpu, cpu.Seconds())
	t.summary, t.CPU = summarise(t.took), mean(t.cpu)
}

// best returns the concurrency with the smallest median.
func best(all map[int]burstTimes) (concurrency int) {
	for _, c := range slices.Sorted(maps.Keys(all)) {
		if t, ok := all[concurrency]; !ok || all[c].P50 < t.P50 {
			concurrency = c
		}
	}
	return concurrency
}

// bursts compares the bursts of Berth with bursts of the floor and of runc alone, at several concurrencies. The large
// bursts use the concurrencies that were the best ones for the small bursts.
func (b *bench) bursts(ctx context.Context) error {
	r := &b.results.Bursts
	var err error
	if r.Start, r.End, err = b.burstsOf(ctx, b.floor, b.burst, b.concurrency, b.concurrency); err != nil {
		return err
	}
	r.LargeStart, r.LargeEnd, err = b.burstsOf(ctx, b.floor, b.large, []int{best(r.Start.Floor)},
		[]int{best(r.Start.Bare)})
	return err
}

// burstsOf compares Berth with a floor at some concurrencies, and with runc alone at others, which may be none.
func (b *bench) burstsOf(ctx context.Context, floor side.Side, pods int, floors, bares []int) (up, down burst,
	err error) {
	up = burst{Pods: pods, Floor: map[int]burstTimes{}, Bare: map[int]burstTimes{}}
	down = burst{Pods: pods, Floor: map[int]burstTimes{}}
	for round := range b.rounds {
		prefix := fmt.Sprintf("burst-%d-%d", pods, round)
		if err := oneBurst(ctx, b.berth, burstOf{prefix, pods, 0}, &up.Berth, &down.Berth); err != nil {
			return up, down, err
		}
		for _, s := range []struct {
			side.Side
			concurrencies []int
			up, down      map[int]burstTimes
		}{{floor, floors, up.Floor, down.Floor}, {b.bare, bares, up.Bare, map[int]burstTimes{}}} {
			for _, c := range s.concurrencies {
				started, ended := s.up[c], s.down[c]
				this := burstOf{fmt.Sprintf("%s-%d", prefix, c), pods, c}
				if err := oneBurst(ctx, s.Side, this, &started, &ended); err != nil {
					return up, down, err
				}
				s.up[c], s.down[c] = started, ended
			}
		}
	}
	return up, down, nil
}

// burstOf is one burst of pods, with the prefix of their names. A concurrency of 0 leaves the choice to Berth.
type burstOf struct {
	prefix            string
	pods, concurrency int
}

// oneBurst starts and removes pods on one side.
func oneBurst(ctx context.Context, s side.Side, b burstOf, up, down *burstTimes) error {
	for _, half := range []struct {
		*burstTimes
		do func() (time.Duration, error)
	}{
		{up, func() (time.Duration, error) { return s.Start(ctx, b.prefix, b.pods, side.Shape{}, b.concurrency) }},
		{down, func() (time.Duration, error) { return s.Remove(ctx, b.prefix, b.pods, b.concurrency) }},
	} {
		before, err := s.Group().CPU()
		if err != nil {
			return err
		}
		took, err := half.do()
		if err != nil {
			return err
		}
		after, err := s.Group().CPU()
		if err != nil {
			return err
		}
		half.add(took, after-before)
	}
	return nil
}

// comparison compares Berth with the other sides at their best concurrencies.
func (b burst) comparison() comparison {
	c := comparison{Berth: b.Berth.summary, Floor: b.Floor[best(b.Floor)].summary, Bare: b.Bare[best(b.Bare)].summary}
	c.Ratio, c.BareRatio = ratio(c.Berth.P50, c.Floor.P50), ratio(c.Berth.P50, c.Bare.P50)
	return c
}

func (b burst) row(p *page, goal string) {
	b.comparison().bareRow(p, fmt.Sprintf("burst of %d pods, to the last one (the others %d and %d at a time)",
		b.Pods, best(b.Floor), best(b.Bare)), goal)
}

// podCPU is the CPU time of a side for one pod, in milliseconds.
func (b burst) podCPU(t burstTimes) float64 { return t.CPU / float64(b.Pods) * 1000 }

// burstCosts prints the CPU time of bursts.
func burstCosts(p *page, all ...burst) {
	p.line("\n## CPU time of all processes, for one pod, in ms\n")
	p.line("Agent, runtime, shim, runc and the containers' own start, from the first manifest to the last " +
		"container's first instruction. Means.\n")
	p.line("| what | Berth | CRI calls | ratio | runc alone | ratio | goal |")
	p.line("|---|---|---|---|---|---|---|")
	for _, b := range all {
		if b.Pods == 0 {
			continue
		}
		ours, floor, bare := b.podCPU(b.Berth), b.podCPU(b.Floor[best(b.Floor)]), b.podCPU(b.Bare[best(b.Bare)])
		p.line("| a pod of a burst of %d | %.1f | %.1f | %.2f | %.1f | **%.2f** | 1.40 |", b.Pods, ours, floor,
			ratio(ours, floor), bare, ratio(ours, bare))
	}
}

// burstDetails prints the times at each concurrency, for start and end.
func burstDetails(p *page, up, down burst) {
	p.line("\nThe burst of %d at each concurrency, p50 in ms:\n", up.Pods)
	p.line("| concurrency | CRI calls, start | runc alone, start | CRI calls, termination |")
	p.line("|---|---|---|---|")
	for _, c := range slices.Sorted(maps.Keys(up.Floor)) {
		p.line("| %d | %.0f | %.0f | %.0f |", c, up.Floor[c].P50, up.Bare[c].P50, down.Floor[c].P50)
	}
}
