package garbage

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/v2/pkg/gc"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/log"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"

	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/runtime/replace"
)

const (
	// first is how long after the start of containerd the first collection is made, when the rest of the start is over.
	first = 5 * time.Second
	// pause is how long what was deleted stays, so that one collection is for many deletions.
	pause = 10 * time.Second
	// share is how many times as long as a collection the pause after it is at least. A collection keeps all changes of
	// the database waiting.
	share = 200
	// many is how many changes of the database without a deletion make a collection worthwhile. It is containerd's
	// default (mutation_threshold).
	many = 100
)

// database is containerd's metadata.DB.
type database interface {
	// RegisterMutationCallback makes the database call changed after each transaction that has changed it. deleted says
	// that it may have left garbage.
	RegisterMutationCallback(changed func(deleted bool))
	GarbageCollect(ctx context.Context) (gc.Stats, error)
}

// collector collects the garbage of a database.
type collector struct {
	db      database
	deleted wake.Signal
	asked   wake.Signal
	changes atomic.Int64 // since the last collection

	mu      sync.Mutex
	waiting []chan result
}

type result struct {
	stats gc.Stats
	err   error
}

// Register registers the plugin for collections. Call it before containerd starts. The plugin of containerd that it
// replaces must not be linked.
func Register() {
	registry.Register(&plugin.Registration{
		Type:     plugins.GCPlugin,
		ID:       "scheduler", // containerd's name for it
		Requires: []plugin.Type{plugins.MetadataPlugin},
		InitFn: func(ic *plugin.InitContext) (any, error) {
			db, err := replace.ByID[database](ic, plugins.MetadataPlugin, "bolt")
			if err != nil {
				return nil, err
			}
			c := newCollector(db)
			go c.run(ic.Context)
			return c, nil
		},
	})
}

func newCollector(db database) *collector {
	c := &collector{db: db, deleted: wake.New(), asked: wake.New()}
	db.RegisterMutationCallback(c.changed)
	return c
}

// changed is called by the database in a transaction's lock. It never blocks.
func (c *collector) changed(deleted bool) {
	if c.changes.Add(1) >= many || deleted {
		c.deleted.Wake()
	}
}

// ScheduleAndWait collects garbage at once and waits for the end. containerd's services call it when the caller of a
// deletion wants to wait for its effect. An error says that the collection has failed, or that ctx has ended.
func (c *collector) ScheduleAndWait(ctx context.Context) (gc.Stats, error) {
	done := make(chan result, 1)
	c.mu.Lock()
	c.waiting = append(c.waiting, done)
	c.mu.Unlock()
	c.asked.Wake()
	select {
	case r := <-done:
		return r.stats, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// run collects garbage until ctx ends. At rest it has no timer.
func (c *collector) run(ctx context.Context) {
	due, wait := time.After(first), pause
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.deleted.C():
			if due == nil {
				due = time.After(wait)
			}
			continue
		case <-c.asked.C():
		case <-due:
		}
		due = nil
		took, err := c.collect(ctx)
		wait = max(pause, share*took)
		if err != nil && ctx.Err() == nil {
			log.G(ctx).WithError(err).Warn("cannot remove what nothing refers to, retrying")
			due = time.After(wait)
		}
	}
}

// collect makes one collection and returns how long it took. Deletions and calls before it need no other one.
func (c *collector) collect(ctx context.Context) (time.Duration, error) {
	c.asked.Clear() // first, so that a call that is not in waiting below is heard
	c.deleted.Clear()
	c.mu.Lock()
	waiting := c.waiting
	c.waiting = nil
	c.mu.Unlock()
	c.changes.Store(0)
	began := time.Now()
	stats, err := c.db.GarbageCollect(ctx)
	for _, w := range waiting {
		w <- result{stats, err}
	}
	return time.Since(began), err
}
