package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/base/reason"
)

// restarts is the time from the end of a container until it runs again. It contains no crash back-off, because the
// first restart has none.
type restarts struct {
	// Killed is for containers that SIGKILL ended, Exited for containers that exited after SIGTERM. Both end with the
	// first instruction of the next instance.
	Killed comparison `json:"killed"`
	Exited comparison `json:"exited"`
	// Begun is for both kinds. It ends when Berth reports the begin of the restart. For the floor it ends when the
	// runtime reports the end of the container.
	Begun comparison `json:"begun"`
}

func (b *bench) restart(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	floor, err := b.floor.startEndedAgain(ctx)
	if err != nil {
		return err
	}
	ours := b.berth.restartsBegun(ctx)
	r := &b.results.Restart
	for _, kind := range []struct {
		name   string
		signal unix.Signal
		*comparison
	}{{"killed", unix.SIGKILL, &r.Killed}, {"exited", unix.SIGTERM, &r.Exited}} {
		ends := shape{args: []string{"stopped", "then", "exit", "1"}}
		sides := []struct {
			side
			begins      <-chan begin
			took, begun *[]time.Duration
		}{{b.berth, ours, &kind.berth, &r.Begun.berth}, {b.floor, floor, &kind.floor, &r.Begun.floor}}
		for _, s := range sides {
			if _, err := s.start(ctx, kind.name, b.restarts, ends, 8); err != nil {
				return err
			}
		}
		for i := range b.restarts {
			for _, s := range sides {
				took, begun, err := endOne(ctx, s.host(), podName(kind.name, i), kind.signal, s.begins)
				if err != nil {
					return err
				}
				*s.took, *s.begun = append(*s.took, took), append(*s.begun, begun)
			}
		}
		for _, s := range sides {
			if _, err := s.remove(ctx, kind.name, b.restarts, 8); err != nil {
				return err
			}
		}
		kind.summarise()
	}
	r.Begun.summarise()
	return nil
}

// endOne ends the container of a pod with a signal, and waits until the next instance runs.
func endOne(ctx context.Context, p *process, podName string, signal unix.Signal,
	begins <-chan begin) (took, begun time.Duration, err error) {
	_, pid, err := p.container(ctx, podName)
	if err != nil {
		return 0, 0, err
	}
	stamp := stampName(podName, 0)
	if err := os.Remove(filepath.Join(p.stamps, stamp)); err != nil {
		return 0, 0, err
	}
	watch, err := watchStamps(p.stamps, stamp)
	if err != nil {
		return 0, 0, err
	}
	defer watch.close()
	end := time.Now()
	if err := unix.Kill(pid, signal); err != nil {
		return 0, 0, fmt.Errorf("end container of pod %s: %w", podName, err)
	}
	next, err := watch.last(ctx)
	if err != nil {
		return 0, 0, err
	}
	for {
		select {
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		case b := <-begins: // earlier ones are for other pods or for the first start
			if b.pod == podName+p.suffix && b.at.After(end) {
				return next.Sub(end), b.at.Sub(end), nil
			}
		}
	}
}

// begin says when the start of a pod's container began.
type begin struct {
	pod string
	at  time.Time
}

// restartsBegun reports the begin of every start of a container, including restarts. A start begins with the event
// Pulled. It ends with ctx.
func (b *berthSide) restartsBegun(ctx context.Context) <-chan begin {
	begins := make(chan begin, 1000)
	go func() {
		for change, err := range b.client.WatchEvents(ctx, client.Select{Namespace: namespace}) {
			if err != nil {
				return // endOne fails at its own timeout, which waits for the stamp
			}
			if at := time.Now(); !change.Synced && change.Object.Reason == reason.Pulled {
				begins <- begin{pod: change.Object.InvolvedObject.Name, at: at}
			}
		}
	}()
	return begins
}

// startEndedAgain restarts containers whose end the runtime reports, and reports the times. It ends with ctx.
func (f *floorSide) startEndedAgain(ctx context.Context) (<-chan begin, error) {
	stream, err := f.cri.Runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return nil, err
	}
	begins := make(chan begin, 1000)
	go func() {
		for {
			e, err := stream.Recv()
			if err != nil {
				return // endOne fails at its own timeout
			}
			if at := time.Now(); e.ContainerEventType == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT {
				begins <- begin{pod: e.PodSandboxStatus.GetMetadata().GetName(), at: at}
				go f.startAgain(ctx, e.ContainerId)
			}
		}
	}()
	return begins, nil
}

// startAgain makes and starts the next instance of a container. The exited one stays, because Berth keeps its log and
// status too. If the start fails, endOne fails because the stamp does not appear.
func (f *floorSide) startAgain(ctx context.Context, id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.pods {
		for i, current := range p.ids {
			if current != id || i >= len(p.containers) || p.ended {
				continue
			}
			config := p.containers[i]
			config.Metadata.Attempt++
			config.LogPath = fmt.Sprintf("%s/%d.log", config.Metadata.Name, config.Metadata.Attempt)
			next, err := f.startContainer(ctx, p, config)
			if err != nil {
				fmt.Fprintln(os.Stderr, "bench: restart container:", err)
				return
			}
			p.ids[i] = next
			return
		}
	}
}

func (r restarts) text(p *page) {
	if r.Begun.Berth.N == 0 {
		return
	}
	p.line("\n## From a container's end to the next one, in ms\n")
	p.line("| what | Berth p50, p99 | floor p50, p99 | ratio of p50 | goal |")
	p.line("|---|---|---|---|---|")
	r.Killed.tailRow(p, "killed from outside, to the next one's first instruction", "-")
	r.Exited.tailRow(p, "ended by itself, to the next one's first instruction", "-")
	r.Begun.tailRow(p, "seen and restart begun; the floor: the runtime reports the end", "under 100")
}

// tailRow prints a row with the 99th percentile, for times whose slow cases matter.
func (c comparison) tailRow(p *page, what, goal string) {
	p.line("| %s, n=%d | %.1f, %.1f | %.1f, %.1f | **%.2f** | %s |", what, c.Berth.N,
		c.Berth.P50, c.Berth.P99, c.Floor.P50, c.Floor.P99, c.Ratio, goal)
}
