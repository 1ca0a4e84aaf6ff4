package dockershim

import (
	"context"
	"log/slog"
	"time"

	"github.com/berth-run/berth/internal/docker/dockerlog"
	"github.com/berth-run/berth/internal/docker/dockershim/index"
)

// drainTimeout is how long the end of a container may wait for its log.
const drainTimeout = 10 * time.Second

// logs copies the output of containers to their logs. The log of a container is complete before readers of the index
// see the container's end, or drainTimeout has passed.
type logs struct {
	copier *dockerlog.Copier
	log    *slog.Logger
}

// Create makes the log of a container that is about to be created.
func (l logs) Create(path string) error { return dockerlog.Create(path) }

// Begin begins to copy the output of a container that is about to start. root is the Engine's data root.
func (l logs) Begin(c *index.Record, root string) {
	if copied(c) {
		l.copier.Add(dockerlog.Container{ID: c.ID, File: dockerlog.File(root, c.ID), Log: c.LogPath})
	}
}

// Complete waits until the log of a container that has ended is complete.
func (l logs) Complete(ctx context.Context, c *index.Record) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	if err := l.copier.Drain(ctx, c.ID); err != nil {
		l.log.Warn("log of an ended container is incomplete, copying until the container is removed", "container", c.ID,
			"err", err)
		return
	}
	l.copier.Remove(c.ID)
}

// Reopen makes the next line of a log go to a new file.
func (l logs) Reopen(id string) error { return l.copier.Reopen(id) }

// Changed begins and completes the copying of a log. A copy that an earlier process began continues where it stopped.
func (l logs) Changed(ctx context.Context, before, after *index.Record) {
	switch {
	case after == nil:
		l.copier.Remove(before.ID)
		return
	case !copied(after) || before != nil && before.Exited() && after.Exited():
		return
	case after.Files.Log != "": // it has started
		l.copier.Add(dockerlog.Container{ID: after.ID, File: after.Files.Log, Log: after.LogPath})
	}
	if after.Exited() {
		l.Complete(ctx, after)
	}
}

// copied reports whether the log of a container is copied. The log of a container of cri-dockerd is a link to Docker's
// file.
func copied(c *index.Record) bool { return !c.Sandbox && c.Spec != "" && c.LogPath != "" }
