package objects

import (
	"context"
	"slices"

	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/object"
)

// Run follows the objects that pods name until ctx ends. It returns ctx's error after all followers have ended. It
// may be called once.
func (c *Cluster) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer c.wg.Wait()
	defer stop()
	c.mu.Lock()
	c.spawn = func(f *follower) {
		ctx, cancel := context.WithCancel(ctx)
		f.cancel = cancel
		c.wg.Go(func() {
			defer cancel()
			f.run(ctx)
		})
	}
	c.mu.Unlock()
	watcher := c.cfg.Pods.Watch()
	defer watcher.Stop()
	local := map[any][]object.Key{}
	for {
		changes, err := watcher.Next(ctx)
		if err != nil {
			return err
		}
		c.mu.Lock()
		for _, change := range changes {
			var keys, own []object.Key
			if !change.Deleted {
				keys = followedFor(change.Value, c.cfg.OwnReferences, c.cfg.Certificates)
				if !c.cfg.OwnReferences && !ofCluster(change.Value) {
					own = Named(change.Value.Pod)
				}
			}
			c.want(change.Key, keys)
			c.countLocal(local[change.Key], own)
			local[change.Key] = own
			if change.Deleted {
				delete(local, change.Key)
			}
		}
		c.unlock()
	}
}

// countLocal counts the objects that pods of manifests name. It reports an object that is named for the first time,
// because it counts as received from then on.
func (c *Cluster) countLocal(was, now []object.Key) {
	for _, key := range now {
		c.local[key]++
		if c.local[key] == 1 {
			c.report(key)
		}
	}
	for _, key := range was {
		if c.local[key]--; c.local[key] == 0 {
			delete(c.local, key)
		}
	}
}

// want sets the keys that a user needs. A key that is new for the user is read again if it is not watched, because
// the stored object may be outdated.
func (c *Cluster) want(user any, keys []object.Key) {
	was := c.wanted[user]
	c.wanted[user] = keys
	if len(keys) == 0 {
		delete(c.wanted, user)
	}
	for _, key := range keys {
		if slices.Contains(was, key) {
			continue
		}
		c.users[key]++
		if f := c.followers[key]; f != nil {
			f.refresh()
			continue
		}
		c.start(key)
	}
	for _, key := range was {
		if slices.Contains(keys, key) {
			continue
		}
		if c.users[key]--; c.users[key] == 0 {
			delete(c.users, key)
			c.end(key)
		}
	}
}

func (c *Cluster) start(key object.Key) {
	f := &follower{cluster: c, key: key, from: source(c.cfg.Client, key), reread: wake.New(),
		retry: wake.New()}
	c.followers[key] = f
	c.restore(key)
	c.spawn(f)
}

// end drops an object that has no user any longer, and the objects that it led to.
func (c *Cluster) end(key object.Key) {
	c.followers[key].cancel()
	delete(c.followers, key)
	delete(c.trouble, key)
	delete(c.sets, key)
	delete(c.received, key)
	if inTable(key) {
		c.cfg.Sink.Drop(key)
	}
	c.want(key, nil)
}

// inTable reports whether a kind is stored in the table. Other kinds are kept here.
func inTable(key object.Key) bool {
	_, ok := object.KindNamed(key.Kind)
	return ok
}
