package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/bench/proc"
)

// probeCost compares the CPU time of exec probes with the CPU time of the same commands when a bare client runs them
// with ExecSync.
type probeCost struct {
	Pods    int       `json:"pods"`
	Seconds float64   `json:"seconds"`
	Berth   execUsage `json:"berth"`
	Floor   execUsage `json:"floor"`
	Ratio   float64   `json:"ratio"` // ratio of the CPU times of one command
}

// execUsage is the number of commands and their CPU time.
type execUsage struct {
	Commands int     `json:"commands"`
	Process  float64 `json:"processSeconds"`  // agent and runtime, or runtime and the bare client
	Shims    float64 `json:"shimSeconds"`     // one shim for each pod
	Children float64 `json:"childrenSeconds"` // runc and the commands
	Each     float64 `json:"milliseconds"`    // all three, for one command
}

// probeCost measures both sides, one after the other.
func (b *bench) probeCost(ctx context.Context) error {
	const prefix = "probed"
	command := []string{"/workload", "true"}
	c := probeCost{Pods: b.probes, Seconds: b.watch.Seconds()}
	s := shape{edit: func(p *corev1.Pod) {
		p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: command}}, PeriodSeconds: 1,
			TimeoutSeconds: 10,
		}
	}}
	for _, part := range []struct {
		side
		usage  *execUsage
		client func(ctx context.Context, run func() error) error
		count  func(context.Context) (int, error)
	}{
		{b.berth, &c.Berth, func(_ context.Context, run func() error) error { return run() }, b.berth.execs},
		{b.floor, &c.Floor, func(ctx context.Context, run func() error) error {
			return b.floor.execEachSecond(ctx, prefix, command, run)
		},
			func(context.Context) (int, error) { return int(b.floor.execs.Load()), nil }},
	} {
		if _, err := part.start(ctx, prefix, c.Pods, s, 8); err != nil {
			return err
		}
		err := part.client(ctx, func() (err error) {
			if err := sleep(ctx, settle); err != nil {
				return err
			}
			*part.usage, err = b.usage(ctx, part.host(), part.count)
			return err
		})
		if err != nil {
			return err
		}
		if _, err := part.remove(ctx, prefix, c.Pods, 8); err != nil {
			return err
		}
	}
	c.Ratio = ratio(c.Berth.Each, c.Floor.Each)
	b.results.Probes = c
	return nil
}

// usage measures a side for the time of -watch while commands run.
func (b *bench) usage(ctx context.Context, p *process, count func(context.Context) (int, error)) (execUsage, error) {
	take := func() (u execUsage, err error) {
		if u, err = p.tree(); err != nil {
			return u, err
		}
		u.Commands, err = count(ctx)
		return u, err
	}
	before, err := take()
	if err != nil {
		return before, err
	}
	if err := sleep(ctx, b.watch); err != nil {
		return before, err
	}
	u, err := take()
	u.Commands -= before.Commands
	u.Process -= before.Process
	u.Shims -= before.Shims
	u.Children -= before.Children
	u.Each = (u.Process + u.Shims + u.Children) * 1000 / float64(max(1, u.Commands))
	return u, err
}

// tree is the CPU time so far of a side's process, of the shims, and of this process, which is the floor's client. It
// finds the shims by the root directory in their arguments.
func (p *process) tree() (u execUsage, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return u, err
	}
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(line), p.root) {
			continue // another program, or a process that has ended
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return u, err
		}
		used, err := proc.CPU(pid)
		switch {
		case err != nil: // the process has ended; its time counts as its parent's Children
		case pid == p.pid():
			u.Process += used.Own.Seconds()
			u.Children += used.Children.Seconds()
		default:
			u.Shims += used.Own.Seconds()
			u.Children += used.Children.Seconds()
		}
	}
	client, err := proc.CPU(unix.Getpid())
	u.Process += client.Own.Seconds()
	return u, err
}

// execEachSecond runs a command each second in the first container of every pod until run returns.
func (f *floorSide) execEachSecond(ctx context.Context, prefix string, command []string, run func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	pods := f.withPrefix(prefix)
	for i, p := range pods {
		wg.Go(func() {
			// Spread the pods over the second, as if they had started one after the other.
			if sleep(ctx, time.Duration(i)*time.Second/time.Duration(len(pods))) != nil {
				return
			}
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for ctx.Err() == nil {
				_, err := f.cri.Runtime.ExecSync(ctx,
					&runtimeapi.ExecSyncRequest{ContainerId: p.ids[0], Cmd: command, Timeout: 10})
				if err == nil {
					f.execs.Add(1)
				}
				select {
				case <-ctx.Done():
				case <-tick.C:
				}
			}
		})
	}
	return run()
}

// execs is the number of commands that the runtime has run for the agent.
func (b *berthSide) execs(ctx context.Context) (int, error) {
	var dialer net.Dialer
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", b.client.Socket())
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://berth/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(),
			`kubelet_runtime_operations_total{operation_type="exec_sync"} `); ok {
			return strconv.Atoi(value)
		}
	}
	return 0, fmt.Errorf("read the agent's metrics: no count of commands in the answer (%s)", response.Status)
}

func (c probeCost) text(p *page) {
	if c.Pods == 0 {
		return
	}
	p.line("\n## CPU time of %d pods with an exec probe each second, over %.0f s\n", c.Pods, c.Seconds)
	p.line("| what | Berth | ExecSync by a bare client | ratio |")
	p.line("|---|---|---|---|")
	p.line("| commands run | %d | %d | |", c.Berth.Commands, c.Floor.Commands)
	p.line("| for a command, ms | %.2f | %.2f | **%.2f** |", c.Berth.Each, c.Floor.Each, c.Ratio)
	for _, row := range []struct {
		what         string
		berth, floor float64
	}{
		{"of that agent and runtime, or runtime and client", c.Berth.Process, c.Floor.Process},
		{"of that the shims", c.Berth.Shims, c.Floor.Shims},
		{"of that runc and the command", c.Berth.Children, c.Floor.Children},
	} {
		each := func(seconds float64, u execUsage) float64 { return seconds * 1000 / float64(max(1, u.Commands)) }
		p.line("| %s, ms | %.2f | %.2f | |", row.what, each(row.berth, c.Berth), each(row.floor, c.Floor))
	}
}
