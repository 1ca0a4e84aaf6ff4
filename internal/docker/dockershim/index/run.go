package index

import (
	"context"
	"errors"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/client"
	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/docker"
	"github.com/berth-run/berth/internal/docker/dockershim/identity"
)

const (
	// readers is how many containers are read from the Engine at the same time. Some of them only wait for their logs.
	readers = 32
	// patience is how long the Engine may take to answer a list or to describe a container.
	patience = 2 * time.Minute
	// firstRetry and lastRetry are the times between attempts to reach an Engine.
	firstRetry, lastRetry = 100 * time.Millisecond, 2 * time.Second
)

// Run follows the Engine's events until ctx ends. When the stream ends, it waits for the Engine and lists all
// containers once.
func (x *Index) Run(ctx context.Context) error {
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { x.read(ctx); return nil })
	parts.Go(func() error {
		for ctx.Err() == nil {
			began := time.Now()
			backoff := retry.Doubling(firstRetry, lastRetry)
			_ = retry.Until(ctx, backoff, x.follow, func(err error, again time.Duration) {
				x.log.Warn("cannot follow Docker's events, retrying", "err", err, "delay", again)
			})
			if time.Since(began) < firstRetry { // the stream ended at once
				_ = retry.Sleep(ctx, firstRetry)
			}
		}
		return nil
	})
	return parts.Wait()
}

// follow subscribes to events, lists all containers, and returns when the stream has ended. An error says that the
// Engine could not be reached.
func (x *Index) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := x.engine.Negotiate(ctx); err != nil {
		return err
	}
	stream := x.engine.Events(ctx, client.EventsListOptions{Filters: client.Filters{}.
		Add("type", string(events.ContainerEventType)).Add("label", identity.Filter)})
	select {
	case err := <-stream.Err:
		return docker.Error(err)
	default:
	}
	listed := make(chan error, 1)
	go func() { listed <- x.list(ctx) }()
	defer x.synced.Store(false)
	for {
		select {
		case err := <-listed:
			if err != nil {
				return err
			}
			x.complete(ctx)
			x.log.Info("following Docker's events", "containers", x.table.Len(), "api", x.engine.ClientVersion())
			listed = nil
		case event := <-stream.Messages:
			x.note(event)
		case err := <-stream.Err:
			if listed != nil {
				return errors.Join(docker.Error(err), errors.New("the stream of events ended during the list"))
			}
			if ctx.Err() == nil {
				x.log.Warn("Docker's stream of events has ended, listing all containers when it answers again",
					"err", err)
			}
			return nil
		}
	}
}

// complete opens the table for readers.
func (x *Index) complete(ctx context.Context) {
	select {
	case <-x.ready:
		x.observer.Listed(ctx, false)
		x.synced.Store(true)
	default:
		x.observer.Listed(ctx, true)
		x.synced.Store(true)
		close(x.ready)
	}
}

// note marks the container of an event for reading.
func (x *Index) note(event events.Message) {
	switch event.Action {
	case events.ActionCreate, events.ActionStart, events.ActionDie, events.ActionDestroy, events.ActionOOM,
		events.ActionUpdate, events.ActionRename, events.ActionPause, events.ActionUnPause:
		x.pending.Add(event.Actor.ID)
	default: // exec, attach, top and others change nothing that a record has
	}
}

// read reads containers that events have named, until ctx ends.
func (x *Index) read(ctx context.Context) {
	var parts errgroup.Group
	parts.SetLimit(readers)
	for {
		select {
		case <-ctx.Done():
			_ = parts.Wait()
			return
		case <-x.pending.C():
		}
		for id := range x.pending.Take() {
			parts.Go(func() error {
				ctx, cancel := context.WithTimeout(ctx, patience)
				defer cancel()
				if _, err := x.Refresh(ctx, id); err != nil && ctx.Err() == nil {
					x.log.Warn("cannot read a container, its record is stale until its next event", "container", id,
						"err", err)
				}
				return nil
			})
		}
	}
}

// list updates the table from the Engine's list of containers.
func (x *Index) list(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	found, err := x.engine.ContainerList(ctx, client.ContainerListOptions{All: true,
		Filters: client.Filters{}.Add("label", identity.Filter)})
	if err != nil {
		return docker.Error(err)
	}
	present := map[string]*container.Summary{}
	for i := range found.Items {
		present[found.Items[i].ID] = &found.Items[i]
	}
	parts, ctx := errgroup.WithContext(ctx)
	parts.SetLimit(readers)
	for id := range x.table.Snapshot().All() {
		if present[id] == nil {
			parts.Go(func() error { _, err := x.Refresh(ctx, id); return err })
		}
	}
	for id, summary := range present {
		if known, _ := x.table.Get(id); stale(known, summary) {
			parts.Go(func() error { _, err := x.Refresh(ctx, id); return err })
		}
	}
	return parts.Wait()
}
