package side

import (
	"context"
	"fmt"
	"os"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/base/reason"
)

// Begin says when the start of a pod's container began.
type Begin struct {
	Pod string
	At  time.Time
}

// RestartsBegun reports the begin of every start of a container, including restarts. A start begins with the event
// Pulled. It ends with ctx.
func (b *Berth) RestartsBegun(ctx context.Context) <-chan Begin {
	begins := make(chan Begin, 1000)
	go func() {
		for change, err := range b.Client.WatchEvents(ctx, client.Select{Namespace: Namespace}) {
			if err != nil {
				return // endOne fails at its own timeout, which waits for the stamp
			}
			if at := time.Now(); !change.Synced && change.Object.Reason == reason.Pulled {
				begins <- Begin{Pod: change.Object.InvolvedObject.Name, At: at}
			}
		}
	}()
	return begins
}

// RestartEnded restarts containers whose end the runtime reports, and reports the times. It ends with ctx.
func (f *Floor) RestartEnded(ctx context.Context) (<-chan Begin, error) {
	since := time.Now().UnixNano()
	stream, err := f.cri.Runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return nil, err
	}
	begins := make(chan Begin, 1000)
	go func() {
		for {
			e, err := stream.Recv()
			if err != nil {
				return // endOne fails at its own timeout
			}
			if e.CreatedAt < since {
				continue // the runtime keeps events for a while while no client reads them
			}
			if at := time.Now(); e.ContainerEventType == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT {
				begins <- Begin{Pod: e.PodSandboxStatus.GetMetadata().GetName(), At: at}
				go f.startAgain(ctx, e.ContainerId)
			}
		}
	}()
	return begins, nil
}

// startAgain makes and starts the next instance of a container. The exited instance stays, because Berth keeps it too.
// If the start fails, endOne fails because the stamp does not appear.
func (f *Floor) startAgain(ctx context.Context, id string) {
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
