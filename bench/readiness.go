package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/berth-run/berth/bench/side"
	"github.com/berth-run/berth/bench/stamp"
	"github.com/berth-run/berth/internal/api/client"
)

// readiness is the time from a changed answer of a readiness probe until a watch of the local API shows it in the pod's
// status.
type readiness struct {
	// HTTP begins just before the server sends the last byte of the answer.
	HTTP summary `json:"http"`
	// Exec begins with the first instruction of the probe's command. The floor runs the same command with ExecSync, and
	// its time ends with the call.
	Exec comparison `json:"exec"`
}

func (b *bench) readiness(ctx context.Context) (err error) {
	r := &b.results.Readiness
	if r.HTTP, err = b.httpFlips(ctx); err != nil {
		return err
	}
	r.Exec, err = b.execFlips(ctx)
	return err
}

// flipping is a shape with a readiness probe each second. A single answer changes the pod's readiness.
func flipping(probe func(*corev1.Pod) corev1.ProbeHandler) side.Shape {
	return side.Shape{Edit: func(p *corev1.Pod) {
		p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: probe(p), PeriodSeconds: 1,
			FailureThreshold: 1, TimeoutSeconds: 5}
	}}
}

// httpFlips runs pods whose probes reach a server in this process. The server's answers alternate for each pod.
func (b *bench) httpFlips(ctx context.Context) (summary, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return summary{}, err
	}
	answers := &answers{turns: map[string]int{}, last: map[string]time.Time{}}
	server := &http.Server{Handler: answers, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }() // ends with Close
	defer func() { _ = server.Close() }()      // after the pods, so that no probe is cut
	const pods, prefix = 5, "flip-http"
	s := flipping(func(p *corev1.Pod) corev1.ProbeHandler {
		return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Host: "127.0.0.1", Path: "/" + p.Name, Port: intstr.FromInt(listener.Addr().(*net.TCPAddr).Port),
		}}
	})
	if _, err := b.berth.Start(ctx, prefix, pods, s, 0); err != nil {
		return summary{}, err
	}
	var took []time.Duration
	for f, err := range b.watchReady(ctx, prefix) {
		if err != nil {
			return summary{}, err
		}
		if took = append(took, f.at.Sub(answers.lastOf(f.pod))); len(took) == b.flips {
			break
		}
	}
	_, err = b.berth.Remove(ctx, prefix, pods, 0)
	return summarise(took), err
}

// answers is a server that answers requests for a path with success and failure in turn.
type answers struct {
	mu    sync.Mutex
	turns map[string]int
	last  map[string]time.Time
}

// ServeHTTP answers a probe.
func (a *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turns[r.URL.Path]++
	if a.turns[r.URL.Path]%2 == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	a.last[r.URL.Path] = time.Now()
}

func (a *answers) lastOf(pod string) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last["/"+pod]
}

// execFlips runs a pod whose probe is a command that fails if a file is missing. After each change of readiness it runs
// the same command directly on the floor.
func (b *bench) execFlips(ctx context.Context) (c comparison, err error) {
	const prefix = "flip-exec"
	name := side.PodName(prefix, 0)
	command := []string{"/workload", "stamp", "/stamps/probe", "then", "exists", "/stamps/ready"}
	s := flipping(func(*corev1.Pod) corev1.ProbeHandler {
		return corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: command}}
	})
	sides := []side.Side{b.berth, b.floor}
	for _, way := range sides {
		if _, err := way.Start(ctx, prefix, 1, s, 1); err != nil {
			return c, err
		}
	}
	id, _, err := b.floor.Container(ctx, name)
	if err != nil {
		return c, err
	}
	// The pod is not ready at this moment. The file makes it ready, which is the first change.
	if err := setReady(b.berth.Stamps, true); err != nil {
		return c, err
	}
	for f, err := range b.watchReady(ctx, prefix) {
		if err != nil {
			return c, err
		}
		began, ok := stamp.Read(filepath.Join(b.berth.Stamps, "probe"))
		if !ok {
			return c, fmt.Errorf("read the stamp of the probe: pod %s changed its readiness without one", name)
		}
		c.berth = append(c.berth, f.at.Sub(began))
		if err := setReady(b.berth.Stamps, !f.ready); err != nil {
			return c, err
		}
		direct, err := b.floor.Exec(ctx, id, command)
		if err != nil {
			return c, err
		}
		if c.floor = append(c.floor, direct); len(c.floor) == b.flips {
			break
		}
	}
	for _, way := range sides {
		if _, err := way.Remove(ctx, prefix, 1, 1); err != nil {
			return c, err
		}
	}
	c.summarise()
	return c, nil
}

// setReady creates or removes the file "ready". The probe's command succeeds while that file exists.
func setReady(stamps string, ready bool) error {
	path := filepath.Join(stamps, "ready")
	if !ready {
		return os.Remove(path)
	}
	return os.WriteFile(path, nil, 0o644)
}

// flip is a change of a pod's Ready condition.
type flip struct {
	pod   string
	ready bool
	at    time.Time
}

// watchReady yields the changes of readiness of pods from now on. Only its error uses prefix.
func (b *bench) watchReady(ctx context.Context, prefix string) func(yield func(flip, error) bool) {
	return func(yield func(flip, error) bool) {
		ready, synced := map[string]bool{}, false
		for change, err := range b.berth.Client.WatchPods(ctx, client.Select{Namespace: side.Namespace}) {
			at := time.Now()
			if err != nil {
				yield(flip{}, fmt.Errorf("watch readiness of %s: %w", prefix, err))
				return
			}
			if change.Synced {
				synced = true
				continue
			}
			p := change.Object
			now := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			})
			was := ready[p.Name]
			ready[p.Name] = now
			if synced && was != now &&
				!yield(flip{pod: strings.TrimSuffix(p.Name, b.berth.Suffix), ready: now, at: at}, nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(flip{}, err)
		}
	}
}

func (r readiness) text(p *page) {
	if r.HTTP.N == 0 {
		return
	}
	p.line("\n## From a readiness probe's other answer to the pod's status, in ms\n")
	p.line("| what | Berth p50, p99 | floor p50, p99 | ratio of p50 | goal |")
	p.line("|---|---|---|---|---|")
	p.line("| httpGet: from the answer to the status in a watch, n=%d | %.1f, %.1f | - | - | 20 |", r.HTTP.N,
		r.HTTP.P50, r.HTTP.P99)
	r.Exec.tailRow(p,
		"exec: from the command's first instruction to the status in a watch; the floor to the end of ExecSync",
		"floor + 20")
}
