package claim

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/object"
)

// removeRetry is the delay after a failed removal or save.
const removeRetry = time.Minute

// Run binds claims and volumes of manifests when either appears, and removes the volumes that were made for claims that
// are gone. It returns when ctx ends.
func (c *Claims) Run(ctx context.Context) error {
	select {
	case <-c.cfg.Synced:
	case <-ctx.Done():
		return ctx.Err()
	}
	watch := c.cfg.Objects.Watch()
	defer watch.Stop()
	defer c.removals.Wait()
	alarm := wake.NewAlarm()
	defer alarm.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-watch.C():
			watch.Changes()
		case <-c.cfg.Origins.OriginsChanged():
		case <-c.wake.C():
		case <-alarm.C():
		}
		next := c.pass(ctx)
		alarm.Set(next, c.cfg.Now())
	}
}

// pass decides about every claim once, and starts to remove volumes. next is when something is due without a change;
// zero is never.
func (c *Claims) pass(ctx context.Context) (next time.Time) {
	changed := c.bindAll()
	gone, next := c.release()
	for name, b := range gone {
		c.removals.Go(func() { removeVolume(ctx, c, name, b) })
	}
	if len(changed) > 0 {
		c.cfg.Pods.ObjectsChanged(changed)
	}
	return next
}

// removeVolume removes the volume of a deleted claim, and then its binding. A volume can have any number of files, so
// the loop does not wait for it. After a failure the loop tries again once removeRetry is over.
func removeVolume(ctx context.Context, c *Claims, name types.NamespacedName, b *Binding) {
	err := safepath.RemoveAll(ctx, c.dir(b.Volume.Name))
	c.mu.Lock()
	if err == nil {
		err = c.change(name, nil)
	}
	delete(c.removing, name)
	delete(c.failed, name)
	if err != nil {
		c.failed[name] = c.cfg.Now()
	}
	c.changed[keyOf(name)] = true
	c.mu.Unlock()
	if err == nil {
		c.cfg.Log.Info("volume of deleted claim removed", "volume", b.Volume.Name, "claim", name)
	} else if ctx.Err() == nil {
		c.cfg.Log.Warn("cannot remove volume, retrying", "volume", b.Volume.Name, "claim", name, "err", err)
	}
	c.wake.Wake()
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// bindAll binds the claims that a volume of a manifest fits. It returns the claims whose pods must try again.
func (c *Claims) bindAll() map[object.Key]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := c.changed
	c.changed = map[object.Key]bool{}
	volumes, owners := c.volumes()
	for key, row := range c.cfg.Objects.Snapshot().All() {
		claim, ok := row.(*corev1.PersistentVolumeClaim)
		if !ok || object.OfCluster(claim) {
			continue
		}
		name := nameOf(claim)
		if c.removing[name] {
			continue
		}
		if b := c.bindings[name]; b != nil {
			if !c.volumeExists(b) && len(b.Users) == 0 && c.change(name, nil) == nil {
				changed[key] = true // its volume is gone, and another may fit
			}
			continue
		}
		found := choose(claim, volumes, owners, c.cfg.Node)
		if found.volume == nil {
			// The pod waits for another reason than before.
			if text := c.reported[name]; text != "" && text != found.why {
				changed[key] = true
			}
			continue
		}
		binding := &Binding{Claim: claim, Volume: found.volume, Origin: originOf(c.cfg.Origins, name)}
		if err := c.change(name, binding); err != nil {
			c.cfg.Log.Warn("cannot save binding of claim", "claim", name, "volume", found.volume.Name, "err", err)
			continue
		}
		owners[found.volume.Name] = name
		delete(c.reported, name)
		changed[key] = true
	}
	return changed
}

// release updates the bindings, and decides about the bindings of claims that are gone and unused. It returns the
// bindings whose volumes must be removed.
func (c *Claims) release() (gone map[types.NamespacedName]*Binding, next time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gone = map[types.NamespacedName]*Binding{}
	for name, b := range c.bindings {
		if c.deleting[name] != nil || c.removing[name] {
			continue // its claim is there until Delete ends, or its volume until removeVolume ends
		}
		now := c.cfg.Now()
		s := c.look(name, b)
		updated := update(*b, s, now)
		fate, due := end(&updated, s, c.cfg.Retention, now)
		if !due.IsZero() {
			next = earlier(next, due)
		}
		var err error
		switch {
		case fate == forget:
			err = c.change(name, nil)
		case !same(b, &updated):
			err = c.change(name, &updated)
		}
		if err != nil {
			c.cfg.Log.Warn("cannot save release of claim, retrying", "claim", name, "err", err)
			next = earlier(next, now.Add(removeRetry))
			continue
		}
		if fate != remove {
			continue
		}
		if at, failed := c.failed[name]; failed && now.Before(at.Add(removeRetry)) {
			next = earlier(next, at.Add(removeRetry))
			continue
		}
		gone[name], c.removing[name] = &updated, true
	}
	return gone, next
}

// look returns the present state of a binding's claim and volume. It needs the lock.
func (c *Claims) look(name types.NamespacedName, b *Binding) sight {
	s := sight{volume: c.volumeExists(b)}
	switch {
	case b.Owner != "":
		return s
	case c.local(name) != nil:
		s.exists, s.origin = true, originOf(c.cfg.Origins, name)
	case b.Origin != nil:
		s.fate = c.cfg.Origins.Fate(*b.Origin)
	}
	return s
}

// originOf returns where a claim comes from, or nil.
func originOf(all origins, name types.NamespacedName) *object.Origin {
	o, ok := all.Origin(keyOf(name))
	if !ok {
		return nil
	}
	return &o
}

// Rows returns the claims and volumes of manifests and of this package, with their status for the local API. The
// revision grows with each change of a binding.
func (c *Claims) Rows() (rows map[object.Key]runtime.Object, revision uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rows = map[object.Key]runtime.Object{}
	byVolume := map[string]*Binding{}
	for _, b := range c.bindings {
		byVolume[b.Volume.Name] = b
		if b.Owner != "" {
			rows[object.KeyOf(b.Claim)] = claimStatus(b.Claim, b, false)
		}
		if b.Made {
			rows[object.KeyOf(b.Volume)] = volumeStatus(b.Volume, b, c.cfg.Retention)
		}
	}
	for key, row := range c.cfg.Objects.Snapshot().All() {
		if o, ok := row.(object.Value); ok && object.OfCluster(o) {
			continue // its status comes from the cluster
		}
		switch o := row.(type) {
		case *corev1.PersistentVolumeClaim:
			b := c.bindings[nameOf(o)]
			rows[key] = claimStatus(o, b, b != nil && !c.volumeExists(b))
		case *corev1.PersistentVolume:
			rows[key] = volumeStatus(o, byVolume[o.Name], c.cfg.Retention)
		}
	}
	return rows, c.revision
}
