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

// restarts is how soon a container that ended runs again. Crash backoff has no
// part in it: a first restart has none.
type restarts struct {
	// Killed by SIGKILL from outside; Exited by itself, when a signal told it to.
	// Both until the first instruction of the next instance.
	Killed comparison `json:"killed"`
	Exited comparison `json:"exited"`
	// Begun is until Berth tells that it has begun the restart, of both kinds; the
	// floor's is until the runtime tells of the end.
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

// endOne ends the container of a pod and waits until the next one runs.
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
		case b := <-begins: // those before are of other pods and of the first start
			if b.pod == podName+p.suffix && b.at.After(end) {
				return next.Sub(end), b.at.Sub(end), nil
			}
		}
	}
}

// begin of a container's start.
type begin struct {
	pod string
	at  time.Time
}

// restartsBegun tells of every start of a container, the restarts among them, by
// the event of its first act. It ends with ctx.
func (b *berthSide) restartsBegun(ctx context.Context) <-chan begin {
	begins := make(chan begin, 1000)
	go func() {
		for change, err := range b.client.WatchEvents(ctx, client.Select{Namespace: namespace}) {
			if err != nil {
				return // whoever waits for a begin gives up with its stamp
			}
			if at := time.Now(); !change.Synced && change.Object.Reason == reason.Pulled {
				begins <- begin{pod: change.Object.InvolvedObject.Name, at: at}
			}
		}
	}()
	return begins
}

// startEndedAgain starts containers again that the runtime tells the end of, and
// tells of it. It ends with ctx.
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
				return // as above
			}
			if at := time.Now(); e.ContainerEventType == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT {
				begins <- begin{pod: e.PodSandboxStatus.GetMetadata().GetName(), at: at}
				go f.startAgain(ctx, e.ContainerId)
			}
		}
	}()
	return begins, nil
}

// startAgain makes and starts the next instance of a container. The dead one
// stays, as its log and status do under Berth. A failure shows as a stamp that
// does not come.
func (f *floorSide) startAgain(ctx context.Context, id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.pods {
		for i, have := range p.ids {
			if have != id || i >= len(p.containers) || p.ended {
				continue
			}
			config := p.containers[i]
			config.Metadata.Attempt++
			config.LogPath = fmt.Sprintf("%s/%d.log", config.Metadata.Name, config.Metadata.Attempt)
			next, err := f.startContainer(ctx, p, config)
			if err != nil {
				fmt.Fprintln(os.Stderr, "bench: start container again:", err)
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
	r.Begun.tailRow(p, "seen and restart begun; the floor: the runtime tells of the end", "under 100")
}

// tailRow is a row of what matters in its slow cases.
func (c comparison) tailRow(p *page, what, goal string) {
	p.line("| %s, n=%d | %.1f, %.1f | %.1f, %.1f | **%.2f** | %s |", what, c.Berth.N,
		c.Berth.P50, c.Berth.P99, c.Floor.P50, c.Floor.P99, c.Ratio, goal)
}
