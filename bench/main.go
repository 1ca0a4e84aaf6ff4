// Command bench measures Berth and, for comparison, the floor: the same CRI calls made directly to the embedded
// runtime, one after the other within a pod, without an agent. README.md says how to read the result.
//
// It needs root, bin/berth and bin/workload.tar (make bench builds both). It works in new temporary directories, and
// removes everything at its end.
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
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/bench/disk"
	"github.com/berth-run/berth/bench/side"
)

type options struct {
	pods, rounds, burst, large, containers int
	restarts, flips, probes, many, updates int
	watch, idleWatch                       time.Duration
	out                                    string
	only                                   []string
	keep                                   bool
	concurrency                            []int
}

func main() {
	var o options
	flag.IntVar(&o.pods, "pods", 20, "pods started one at a time, on each side")
	flag.IntVar(&o.containers, "containers", 5, "containers of the pod with several containers")
	flag.IntVar(&o.burst, "burst", 30, "pods started and removed at once")
	flag.IntVar(&o.large, "large", 100, "pods of the large bursts")
	flag.IntVar(&o.rounds, "rounds", 3, "bursts on each side, at each concurrency")
	flag.IntVar(&o.restarts, "restarts", 50, "containers killed, and as many that exit, on each side")
	flag.IntVar(&o.flips, "flips", 20, "how often the result of a readiness probe changes")
	flag.IntVar(&o.probes, "probes", 100, "pods with an exec probe each second, on each side")
	flag.IntVar(&o.many, "many", 100, "pods that mount one ConfigMap")
	flag.IntVar(&o.updates, "updates", 5, "how often the ConfigMap is edited")
	flag.DurationVar(&o.watch, "watch", time.Minute, // it has each period of the agent, 10, 20 and 30 s, as a whole
		"how long the CPU time of the idle agent, and of exec probes, is measured")
	flag.DurationVar(&o.idleWatch, "idle-watch", time.Minute,
		"how long the requests of an idle node of a cluster are counted")
	flag.StringVar(&o.out, "out", "bench", "directory of RESULTS.md and results.json")
	flag.Func("only",
		"measure only these parts, separated by commas, and write no files unless -keep is set: "+
			strings.Join(partNames(), ", "),
		func(s string) error {
			o.only = strings.Split(s, ",")
			for _, name := range o.only {
				if !slices.Contains(partNames(), name) {
					return fmt.Errorf("unknown part %q", name)
				}
			}
			return nil
		})
	flag.BoolVar(&o.keep, "keep", false, "with -only: keep the results of the other parts in -out, and write all")
	o.concurrency = []int{1, 2, 3, 4, 6, 8, 16, 30}
	flag.Func("concurrency",
		"how many pods of a burst the floor and runc start or remove at once, separated by commas "+
			"(default 1,2,3,4,6,8,16,30)", numbers(&o.concurrency))
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// numbers reads the value of a flag: numbers that are separated by commas.
func numbers(into *[]int) func(string) error {
	return func(s string) error {
		*into = nil
		for text := range strings.SplitSeq(s, ",") {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 {
				return fmt.Errorf("%q is not a number of at least 1", text)
			}
			*into = append(*into, n)
		}
		return nil
	}
}

// bench has the two sides that the parts measure, and the results.
type bench struct {
	options
	berth   *side.Berth
	floor   *side.Floor
	bare    *side.Bare
	results results
}

// part is a family of rows in the report. Its function stores the results in bench.results.
type part struct {
	name    string
	measure func(*bench, context.Context) error
	alone   bool // the part needs neither Berth nor the floor to run
}

func parts() []part {
	return []part{
		{name: "one", measure: (*bench).one},
		{name: "several", measure: (*bench).several},
		{name: "burst", measure: (*bench).bursts},
		{name: "stock", measure: (*bench).stock},
		{name: "ending", measure: (*bench).ending},
		{name: "restart", measure: (*bench).restart},
		{name: "readiness", measure: (*bench).readiness},
		{name: "probes", measure: (*bench).probeCost},
		{name: "objects", measure: (*bench).objects},
		{name: "update", measure: (*bench).liveUpdate},
		{name: "idle", measure: (*bench).idlePods},
		{name: "placement", measure: (*bench).placement, alone: true},
		{name: "scale", measure: (*bench).scale, alone: true},
		{name: "status", measure: (*bench).statuses, alone: true},
		{name: "cluster", measure: (*bench).cluster, alone: true},
		{name: "watches", measure: (*bench).watches, alone: true},
		{name: "nodes", measure: (*bench).nodes, alone: true},
	}
}

func partNames() []string {
	var names []string
	for _, p := range parts() {
		names = append(names, p.name)
	}
	return names
}

func run(ctx context.Context, o options) (err error) {
	own, err := disk.New()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, own.Close()) }()
	b := &bench{options: o, results: results{Machine: machine(), Date: time.Now().UTC().Format(time.DateOnly)}}
	if o.keep && len(o.only) > 0 {
		if err := b.results.keep(o.out, o.only); err != nil {
			return err
		}
	}
	wanted := slices.DeleteFunc(parts(), func(p part) bool {
		return len(o.only) > 0 && !slices.Contains(o.only, p.name)
	})
	if slices.ContainsFunc(wanted, func(p part) bool { return !p.alone }) {
		defer func() { err = errors.Join(err, side.RemoveGroups()) }()
		if err := b.results.measureBinary(); err != nil {
			return err
		}
		dirs := func(name string) side.Dirs { // short: sockets lie below it
			return side.Dirs{Root: filepath.Join(own.Dir, name), Run: filepath.Join(own.Memory, name)}
		}
		if b.berth, err = side.StartBerth(ctx, dirs("a")); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.berth.Close()) }()
		if b.floor, err = side.StartFloor(ctx, dirs("f")); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.floor.Close()) }()
		if b.bare, err = side.PrepareBare(ctx, b.floor, dirs("r")); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.bare.Close()) }()
	}
	for _, part := range wanted {
		if err := part.measure(b, ctx); err != nil {
			return fmt.Errorf("measure %s: %w", part.name, err)
		}
	}
	fmt.Print(b.results.text())
	if len(o.only) > 0 && !o.keep {
		return nil
	}
	return b.results.write(o.out)
}
