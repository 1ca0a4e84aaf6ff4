package pleg

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/pod"
)

// Delays between attempts to open the event stream, to relist, or to read again what could not be read.
const (
	firstDelay = 100 * time.Millisecond
	maxDelay   = 5 * time.Second
	// latestRetry is the longest time until the next relist after a relist or a reading has failed.
	latestRetry = time.Minute
	// opening is how long a runtime may need to send events to a new stream. It does not say when it begins.
	opening = time.Second
)

var errNoEvents = errors.New("the runtime has no events")

// Run keeps the table up to date until ctx ends.
func (p *PLEG) Run(ctx context.Context) error {
	defer p.wg.Wait()
	if err := p.firstRelist(ctx); err != nil {
		return err
	}
	p.wg.Go(func() { p.audit(ctx) })
	<-ctx.Done()
	return ctx.Err()
}

func (p *PLEG) firstRelist(ctx context.Context) error {
	relist := func(ctx context.Context) error { return p.measured(ctx, true) }
	err := retry.Until(ctx, retry.Doubling(firstDelay, maxDelay), relist, func(err error, next time.Duration) {
		p.opts.Log.Warn("list pods of the runtime failed, retrying", "err", err, "delay", next)
	})
	if err != nil {
		return ctx.Err()
	}
	p.table.MarkSynced()
	return nil
}

// audit follows the events, if the runtime has any, and relists.
func (p *PLEG) audit(ctx context.Context) {
	events := make(chan error, 1)
	follow := func() { p.wg.Go(func() { events <- p.follow(ctx) }) }
	follow()
	period, retries := p.opts.Audit, retry.Doubling(firstDelay, latestRetry)
	timer := time.NewTimer(opening)
	defer timer.Stop()
	var again <-chan time.Time // fires when to relist because of a failure
	trouble := false           // since the last relist that was due
	for {
		wait := period // until the next relist
		select {
		case <-ctx.Done():
			return
		case err := <-events:
			if errors.Is(err, errNoEvents) {
				p.opts.Log.Info("runtime has no events, listing its pods periodically", "period", p.opts.Poll)
				period, wait = p.opts.Poll, p.opts.Poll
				break
			}
			// A broken stream has lost events: relist, then follow again.
			if retry.Sleep(ctx, min(retries.Step(), maxDelay)) != nil {
				return
			}
			follow()
			wait, trouble = opening, true
		case <-p.failed.C():
			if trouble = true; again == nil {
				again = time.After(retries.Step())
			}
			continue
		case <-again:
			trouble = false
		case <-timer.C:
			if !trouble {
				retries = retry.Doubling(firstDelay, latestRetry)
			}
			trouble = false
		}
		again = nil
		if err := p.measured(ctx, false); err != nil && ctx.Err() == nil {
			p.opts.Log.Warn("list pods of the runtime failed, retrying", "err", err)
			p.failed.Wake()
		}
		timer.Reset(jitter(wait))
	}
}

// follow marks the pods named by the runtime's events until the stream ends.
func (p *PLEG) follow(ctx context.Context) error {
	stream, err := p.opts.Runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	for err == nil {
		var event *runtimeapi.ContainerEventResponse
		if event, err = stream.Recv(); err == nil {
			p.event(ctx, event)
		}
	}
	if status.Code(err) == codes.Unimplemented || cri.IsUnimplemented(err) {
		return errNoEvents
	}
	if ctx.Err() == nil {
		p.opts.Log.Debug("event stream of the runtime ended", "err", err)
	}
	return err
}

func (p *PLEG) event(ctx context.Context, e *runtimeapi.ContainerEventResponse) {
	uid := types.UID(e.GetPodSandboxStatus().GetMetadata().GetUid())
	if uid == "" {
		uid = p.owner(e.ContainerId)
	}
	if uid != "" {
		p.mark(ctx, uid)
	}
}

// owner finds the pod of a container or sandbox that an event names only by id.
func (p *PLEG) owner(id string) types.UID {
	for uid, o := range p.table.Snapshot().All() {
		if _, ok := sandboxOf(o, id); ok {
			return uid
		}
		if _, ok := containerOf(o, id); ok {
			return uid
		}
	}
	return ""
}

// relist compares everything in the runtime with the table. It marks the pods that differ or, if wait, reads them.
func (p *PLEG) relist(ctx context.Context, wait bool) error {
	boxes, err := p.opts.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	containers, err := p.opts.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	pods := listed{boxes.Items, containers.Containers}.byPod()
	for uid := range p.table.Snapshot().All() {
		if _, ok := pods[uid]; !ok {
			pods[uid] = listed{}
		}
	}
	for uid, l := range pods {
		switch {
		case l.same(p.Observed(uid)):
		case wait:
			if err := p.Refresh(ctx, uid); err != nil {
				return err
			}
		default:
			p.mark(ctx, uid)
		}
	}
	return nil
}

// detail completes now from the listing. It copies from the last reading what cannot have changed since.
func (p *PLEG) detail(ctx context.Context, was, now *pod.Observed, l listed) (*pod.Observed, error) {
	for _, s := range l.sandboxes {
		now.Name, now.Namespace = s.GetMetadata().GetName(), s.GetMetadata().GetNamespace()
		ready := s.State == runtimeapi.PodSandboxState_SANDBOX_READY
		if known, ok := sandboxOf(was, s.Id); ok && known.Ready == ready && (known.HostNetwork || len(known.IPs) > 0) {
			now.Sandboxes = append(now.Sandboxes, known)
			continue
		}
		r, err := p.opts.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.Id})
		if cri.IsNotFound(err) {
			continue // removed since it was listed
		}
		if err != nil {
			return nil, fmt.Errorf("status of sandbox %s: %w", s.Id, err)
		}
		now.Sandboxes = append(now.Sandboxes, sandboxStatus(s, r.Status))
	}
	for _, c := range l.containers {
		if now.Name == "" {
			now.Name, now.Namespace = c.Labels[pod.LabelPodName], c.Labels[pod.LabelPodNamespace]
		}
		known, ok := containerOf(was, c.Id)
		if ok && known.State == stateOf(c.State) && known.State != pod.StateUnknown {
			now.Containers = append(now.Containers, known)
			continue
		}
		r, err := p.opts.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.Id})
		if cri.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("status of container %s: %w", c.Id, err)
		}
		now.Containers = append(now.Containers, p.shown(containerStatus(c, r.Status)))
	}
	order(now)
	return now, nil
}

// jitter spreads the audits of several agents on one machine.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration(rand.Int64N(int64(d)/10+1))
}
