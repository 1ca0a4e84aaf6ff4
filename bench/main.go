// Command bench measures Berth beside the floor: the same CRI calls made
// directly, and serially within a pod, against the embedded runtime alone. See
// README.md for how to read the result.
//
// It needs root, bin/berth and bin/workload.tar (make bench builds both). It
// works on directories of its own and takes all of it away.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

type options struct {
	pods, rounds, burst, containers int
	idle                            time.Duration
	out                             string
	only                            string
	concurrency                     []int
}

func main() {
	var o options
	flag.IntVar(&o.pods, "pods", 20, "pods started one at a time, on each side")
	flag.IntVar(&o.containers, "containers", 5, "containers of the pod with several")
	flag.IntVar(&o.burst, "burst", 30, "pods started at once")
	flag.IntVar(&o.rounds, "rounds", 3, "bursts on each side and concurrency")
	flag.DurationVar(&o.idle, "idle", 30*time.Second, "how long the idle agent is watched")
	flag.StringVar(&o.only, "only", "", "one part: one, several, burst or idle; nothing is written then")
	flag.StringVar(&o.out, "out", "bench", "directory of RESULTS.md and results.json")
	o.concurrency = []int{1, 2, 3, 4, 6, 8, 16, 30}
	flag.Func("concurrency", "how many pods of a burst the floor starts at once, with commas between (default 1,2,3,4,6,8,16,30)", func(s string) error {
		o.concurrency = nil
		for text := range strings.SplitSeq(s, ",") {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 {
				return fmt.Errorf("%q is not a number of pods", text)
			}
			o.concurrency = append(o.concurrency, n)
		}
		return nil
	})
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp("", "bb") // short: unix sockets lie below it
	if err != nil {
		return err
	}
	defer func() {
		if err == nil { // else something of it may still run
			err = os.RemoveAll(dir)
		}
	}()
	berth, err := startBerth(ctx, filepath.Join(dir, "a"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, berth.end()) }()
	floor, err := startFloor(ctx, filepath.Join(dir, "f"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, floor.end()) }()

	r := results{Machine: machine(), Date: time.Now().UTC().Format(time.DateOnly)}
	for _, part := range []struct {
		name string
		run  func() error
	}{
		{"one", func() (err error) { r.One, err = alternate(ctx, berth, floor, o.pods, 1); return }},
		{"several", func() (err error) { r.Several, err = alternate(ctx, berth, floor, o.pods, o.containers); return }},
		{"burst", func() (err error) { r.Burst, err = bursts(ctx, berth, floor, o); return }},
		{"idle", func() (err error) { r.Idle, err = idle(ctx, berth, o.burst, o.idle); return }},
	} {
		if o.only != "" && o.only != part.name {
			continue
		}
		if err := part.run(); err != nil {
			return fmt.Errorf("measure %s: %w", part.name, err)
		}
	}
	r.Several.Containers = o.containers
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	fmt.Print(r.text())
	if o.only != "" {
		return nil
	}
	return errors.Join(
		os.WriteFile(filepath.Join(o.out, "results.json"), append(raw, '\n'), 0o644),
		os.WriteFile(filepath.Join(o.out, "RESULTS.md"), []byte(r.text()), 0o644),
	)
}

// side starts pods in one of the two ways that are compared.
type side interface {
	// start makes the pods at once and returns the time from the first act to the
	// last container's first instruction. Their names begin with prefix.
	start(ctx context.Context, prefix string, pods, containers, concurrency int) (time.Duration, error)
	// remove ends them again.
	remove(ctx context.Context, prefix string, pods int) error
	// pid is the process that does it, with the runtime in it.
	pid() int
}

// alternate starts pods one at a time, in turn on each side, so that both see
// the same machine. The first of each is a warm-up.
func alternate(ctx context.Context, berth, floor side, n, containers int) (comparison, error) {
	var c comparison
	for i := range n + 1 {
		for _, s := range []struct {
			side
			times *[]time.Duration
		}{{berth, &c.berth}, {floor, &c.floor}} {
			name := fmt.Sprintf("one-%d-%d", containers, i)
			took, err := s.start(ctx, name, 1, containers, 1)
			if err != nil {
				return c, err
			}
			if err := s.remove(ctx, name, 1); err != nil {
				return c, err
			}
			if i > 0 {
				*s.times = append(*s.times, took)
			}
		}
	}
	c.summarise()
	return c, nil
}

// bursts compares the makespan of many pods at once with the floor's at each of
// several concurrencies; its best counts.
func bursts(ctx context.Context, berth, floor side, o options) (burst, error) {
	b := burst{Pods: o.burst, Floor: map[int]summary{}}
	var ours []time.Duration
	theirs := map[int][]time.Duration{}
	for round := range o.rounds {
		prefix := fmt.Sprintf("burst-%d", round)
		took, used, err := startAndRemove(ctx, berth, prefix, o.burst, 0)
		if err != nil {
			return b, err
		}
		ours, b.BerthCPU = append(ours, took), append(b.BerthCPU, used)
		for _, concurrency := range o.concurrency {
			took, used, err := startAndRemove(ctx, floor, fmt.Sprintf("%s-%d", prefix, concurrency), o.burst, concurrency)
			if err != nil {
				return b, err
			}
			theirs[concurrency], b.FloorCPU = append(theirs[concurrency], took), append(b.FloorCPU, used)
		}
	}
	b.Berth = summarise(ours)
	for concurrency, times := range theirs {
		s := summarise(times)
		b.Floor[concurrency] = s
		if best, ok := b.Floor[b.Best]; !ok || s.P50 < best.P50 {
			b.Best = concurrency
		}
	}
	b.Ratio = ratio(b.Berth.P50, b.Floor[b.Best].P50)
	return b, nil
}

// startAndRemove returns the makespan of the starts and the CPU time that the
// side's process took for them.
func startAndRemove(ctx context.Context, s side, prefix string, pods, concurrency int) (took time.Duration, used float64, err error) {
	before, err := cpu(s.pid())
	if err != nil {
		return 0, 0, err
	}
	if took, err = s.start(ctx, prefix, pods, 1, concurrency); err != nil {
		return 0, 0, err
	}
	after, err := cpu(s.pid())
	if err != nil {
		return 0, 0, err
	}
	return took, float64(after-before) / ticks, s.remove(ctx, prefix, pods)
}
