package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// options choose how much is measured.
type options struct {
	hogs, kubelet, files int
	watch                time.Duration
	neverOOM             bool
	out                  string
}

func main() {
	var o options
	flag.IntVar(&o.hogs, "hogs", 50, "pods that take 200 MB of memory a second until they are evicted; 0: none")
	flag.IntVar(&o.kubelet, "kubelet", 0,
		"run so many of these pods on a node of the upstream kubelet too (needs bin/cluster)")
	flag.BoolVar(&o.neverOOM, "never-oom", false, "fail if the kernel's OOM killer ends one of these pods first")
	flag.IntVar(&o.files, "files", 1_000_000, "files of the emptyDir that is walked; 0: measure no cost")
	flag.DurationVar(&o.watch, "watch", 30*time.Second, "how long the CPU time of an idle agent is measured")
	flag.StringVar(&o.out, "out", "", "`directory` of EVICTION.md (default: write no file)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "pressure:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	var r results
	if r.Machine, err = machine(); err != nil {
		return err
	}
	if r.Loads[0], err = load(); err != nil {
		return err
	}
	var failed error // by -never-oom: the results are printed too
	if o.hogs > 0 {
		failed = r.evict(ctx, o)
	}
	if o.kubelet > 0 && failed == nil {
		failed = r.evictOnKubelet(ctx, o)
	}
	if o.files > 0 && failed == nil {
		failed = r.look(ctx, o)
	}
	if r.Loads[1], err = load(); err != nil {
		return errors.Join(failed, err)
	}
	fmt.Print(r.text())
	if o.out == "" || failed != nil {
		return failed
	}
	return os.WriteFile(filepath.Join(o.out, "EVICTION.md"), []byte(r.text()), 0o644)
}

// machine describes the kind of machine, without its name.
func machine() (string, error) {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "", err
	}
	major, _, _ := strings.Cut(strings.TrimSpace(string(release)), "-")
	cgroups := "v1"
	if exists("/sys/fs/cgroup/cgroup.controllers") {
		cgroups = "v2"
	}
	return fmt.Sprintf("%s, on %d CPUs, Linux %s, cgroup %s", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(),
		major, cgroups), nil
}

// load is the load of the machine over the last minute.
func load() (string, error) {
	text, err := os.ReadFile("/proc/loadavg")
	minute, _, _ := strings.Cut(string(text), " ")
	return minute, err
}
