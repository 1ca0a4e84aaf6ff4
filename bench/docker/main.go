// Command docker measures Berth on a Docker Engine beside the Engine alone. It needs root, bin/berth, bin/workload.tar
// and dockerd (make bench builds or installs them). It works in new temporary directories, and removes everything at
// its end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/bench/proc"
	"github.com/berth-run/berth/bench/side"
	"github.com/berth-run/berth/internal/base/retry"
)

type options struct {
	pods, burst, rounds, listed, concurrency int
	watch                                    time.Duration
	out                                      string
}

func main() {
	var o options
	flag.IntVar(&o.pods, "pods", 20, "pods started one at a time, on each side")
	flag.IntVar(&o.burst, "burst", 30, "pods started at once, and pods of the idle agent")
	flag.IntVar(&o.rounds, "rounds", 3, "bursts on each side")
	flag.IntVar(&o.concurrency, "concurrency", 4, "how many pods of a burst the Engine alone starts at once")
	flag.IntVar(&o.listed, "listed", 100, "containers in the lists")
	flag.DurationVar(&o.watch, "watch", 30*time.Second, "how long the CPU time of the idle agent is measured")
	flag.StringVar(&o.out, "out", "", "file for the results; they are printed too")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench/docker:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp("", "bd") // short: unix sockets lie below it
	if err != nil {
		return err
	}
	defer func() {
		if err == nil { // after an error, a process may still use the directory
			err = os.RemoveAll(dir)
		}
	}()
	defer func() { err = errors.Join(err, side.RemoveGroups()) }()
	floor, err := side.StartDocker(ctx, filepath.Join(dir, "d"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, floor.Close()) }()
	berth, err := side.StartBerthOnDocker(ctx, filepath.Join(dir, "b"), floor)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, berth.Close()) }()
	text := &strings.Builder{}
	fmt.Fprintf(text, "# Results on a Docker Engine\n\n%s. How to read it: README.md beside this file.\n\n",
		time.Now().UTC().Format(time.DateOnly))
	for _, part := range []func(context.Context, options, *side.Berth, *side.Docker, *strings.Builder) error{
		starts, restarts, probes, atRest} {
		if err := part(ctx, o, berth, floor, text); err != nil {
			return err
		}
	}
	fmt.Print(text)
	if o.out == "" {
		return nil
	}
	return os.WriteFile(o.out, []byte(text.String()), 0o644)
}

// starts measures the starts of single pods and of bursts, on both sides in turn. The first pod is a warm-up.
func starts(ctx context.Context, o options, berth *side.Berth, floor *side.Docker, text *strings.Builder) error {
	fmt.Fprint(text, "| from the manifest to the first instruction | Berth p50 (min, max), ms | Engine alone | ratio "+
		"| goal |\n|---|---|---|---|---|\n")
	for _, row := range []struct {
		what, goal               string
		rounds, pods, concurrent int
	}{
		{"one pod of one container", "1.15", o.pods, 1, 1},
		{fmt.Sprintf("burst of %d pods (the Engine %d at a time)", o.burst, o.concurrency), "1.20", o.rounds, o.burst,
			o.concurrency},
	} {
		times := make([][]time.Duration, 2)
		for round := range row.rounds + 1 {
			for i, s := range []side.Side{berth, floor} {
				prefix := fmt.Sprintf("p%d-%d", row.pods, round)
				took, err := s.Start(ctx, prefix, row.pods, side.Shape{Containers: 1}, row.concurrent)
				if err != nil {
					return err
				}
				if _, err := s.Remove(ctx, prefix, row.pods, row.concurrent); err != nil {
					return err
				}
				if round > 0 {
					times[i] = append(times[i], took)
				}
			}
		}
		ratio := float64(median(times[0])) / float64(median(times[1]))
		fmt.Fprintf(text, "| %s, n=%d | %s | %s | **%.2f** | %s |\n", row.what, row.rounds, cell(times[0]),
			cell(times[1]), ratio, row.goal)
	}
	return nil
}

// restarts measures restarts after SIGKILL on both sides in turn, each in a new pod, because the first restart of a
// container has no back-off. The first pod is a warm-up.
func restarts(ctx context.Context, o options, berth *side.Berth, floor *side.Docker, text *strings.Builder) error {
	type killer interface {
		side.Side
		Kill(ctx context.Context, podName string) (time.Duration, error)
	}
	times := make([][]time.Duration, 2)
	for round := range o.pods + 1 {
		for i, s := range []killer{berth, floor} {
			prefix := fmt.Sprintf("killed%d", round)
			if _, err := s.Start(ctx, prefix, 1, side.Shape{}, 1); err != nil {
				return err
			}
			took, err := s.Kill(ctx, side.PodName(prefix, 0))
			if err != nil {
				return err
			}
			if _, err := s.Remove(ctx, prefix, 1, 1); err != nil {
				return err
			}
			if round > 0 {
				times[i] = append(times[i], took)
			}
		}
	}
	ratio := float64(median(times[0])) / float64(median(times[1]))
	fmt.Fprintf(text, "| restart after SIGKILL, to the next first instruction, n=%d | %s | %s | **%.2f** | |\n", o.pods,
		cell(times[0]), cell(times[1]), ratio)
	return nil
}

// probes compares the CPU time of exec probes with the CPU time of the same commands when a bare client of the Engine
// runs them. It counts everything: Engine, shims, runc, the commands, and the agent or the bare client.
func probes(ctx context.Context, o options, berth *side.Berth, floor *side.Docker, text *strings.Builder) error {
	const prefix = "probed"
	command := []string{"/workload", "true"}
	var cost [2]float64
	for i, part := range []struct {
		side.Side
		run   func(run func() error) error
		count func(context.Context) (int, error)
	}{
		{berth, func(run func() error) error { return run() }, berth.Commands},
		{floor, func(run func() error) error { return floor.ExecEachSecond(ctx, prefix, command, run) },
			floor.Commands},
	} {
		if _, err := part.Start(ctx, prefix, o.burst, side.Probed(command), o.concurrency); err != nil {
			return err
		}
		if err := part.run(func() (err error) {
			cost[i], err = perCommand(ctx, o.watch, floor, part.count)
			return err
		}); err != nil {
			return err
		}
		if _, err := part.Remove(ctx, prefix, o.burst, o.concurrency); err != nil {
			return err
		}
	}
	fmt.Fprintf(text, "\nAn exec probe takes %.1f ms of CPU in all, and %.1f ms if the Engine alone runs the command\n"+
		"(ratio %.2f): %d pods, a command each second, over %v.\n", cost[0], cost[1], cost[0]/cost[1], o.burst,
		o.watch)
	return nil
}

// perCommand returns the CPU time for a command, in ms, of the Engine's cgroup and of this process, which is the bare
// client.
func perCommand(ctx context.Context, watch time.Duration, engine *side.Docker,
	count func(context.Context) (int, error)) (ms float64, err error) {
	take := func() (cpu time.Duration, commands int, err error) {
		group, err := engine.Group().CPU()
		if err != nil {
			return 0, 0, err
		}
		own, err := proc.CPU(unix.Getpid())
		if err != nil {
			return 0, 0, err
		}
		commands, err = count(ctx)
		return group + own.Own, commands, err
	}
	if err := retry.Sleep(ctx, settle); err != nil {
		return 0, err
	}
	before, already, err := take()
	if err != nil {
		return 0, err
	}
	if err := retry.Sleep(ctx, watch); err != nil {
		return 0, err
	}
	after, commands, err := take()
	return float64((after - before).Microseconds()) / 1000 / float64(max(1, commands-already)), err
}

// settle is how long to wait after a start of pods before something is measured.
const settle = 15 * time.Second

// atRest measures the agent's process while nothing happens, and lists of many containers.
func atRest(ctx context.Context, o options, berth *side.Berth, _ *side.Docker, text *strings.Builder) error {
	const calls = 20
	if _, err := berth.Start(ctx, "idle", o.burst, side.Shape{}, 0); err != nil {
		return err
	}
	if err := retry.Sleep(ctx, settle); err != nil {
		return err
	}
	before, err := proc.CPU(berth.PID())
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := retry.Sleep(ctx, o.watch); err != nil {
		return err
	}
	after, err := proc.CPU(berth.PID())
	if err != nil {
		return err
	}
	percent := (after.Own - before.Own).Seconds() / time.Since(begin).Seconds() * 100
	rss, _, err := proc.Memory(berth.PID())
	if err != nil {
		return err
	}
	fmt.Fprintf(text, "\nWith %d idle pods, over %v, the agent and its shim use %.2f %% of a core (goal: 0.30) and "+
		"have %.1f MB (RSS).\n", o.burst, o.watch, percent, rss)
	if _, err := berth.Remove(ctx, "idle", o.burst, 0); err != nil {
		return err
	}
	if _, err := berth.Start(ctx, "listed", o.listed, side.Shape{}, 0); err != nil {
		return err
	}
	var containers, usage []time.Duration
	for range calls {
		list, stats, err := berth.Lists(ctx)
		if err != nil {
			return err
		}
		containers, usage = append(containers, list), append(usage, stats)
	}
	fmt.Fprintf(text, "A list of %d containers takes %s ms (goal: 1), a list of their usage %s ms.\n", o.listed,
		cell(containers), cell(usage))
	_, err = berth.Remove(ctx, "listed", o.listed, 0)
	return err
}

func median(times []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(times))[len(times)/2]
}

// cell shows the median, the minimum and the maximum, in ms.
func cell(times []time.Duration) string {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return fmt.Sprintf("%.1f (%.1f, %.1f)", ms(median(times)), ms(slices.Min(times)), ms(slices.Max(times)))
}
