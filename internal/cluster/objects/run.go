package objects

import (
	"context"
	"slices"

	"github.com/berth-run/berth/internal/model/object"
)

// Run follows what pods name until ctx ends. It returns ctx's error, after
// everything that it started has ended. It may be called once.
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
				keys = followedFor(change.Value)
				if !ofCluster(change.Value) {
					own = Named(change.Value.Pod)
				}
			}
			c.name(change.Key, keys)
			c.keepLocal(local[change.Key], own)
			local[change.Key] = own
			if change.Deleted {
				delete(local, change.Key)
			}
		}
		c.unlock()
	}
}

// keepLocal counts what pods of manifests name; what is named for the first time
// is known from now on.
func (c *Cluster) keepLocal(was, now []object.Key) {
	for _, key := range now {
		c.local[key]++
		if c.local[key] == 1 {
			c.tell(key)
		}
	}
	for _, key := range was {
		if c.local[key]--; c.local[key] == 0 {
			delete(c.local, key)
		}
	}
}

// name makes keys all that a user wants to be followed. What it did not want
// before is read again if it is not watched: its content may be of an earlier time.
func (c *Cluster) name(user any, keys []object.Key) {
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
			f.lookAgain()
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
	f := &follower{cluster: c, key: key, from: source(c.cfg.Client, key), again: make(chan struct{}, 1),
		retry: make(chan struct{}, 1)}
	c.followers[key] = f
	c.recall(key)
	c.spawn(f)
}

// end forgets an object that nobody names any more, and what it led to.
func (c *Cluster) end(key object.Key) {
	c.followers[key].cancel()
	delete(c.followers, key)
	delete(c.trouble, key)
	delete(c.sets, key)
	delete(c.heard, key)
	if inTable(key) {
		c.cfg.Sink.Drop(key)
	}
	c.name(key, nil)
}

// inTable: other kinds are kept here.
func inTable(key object.Key) bool {
	_, ok := object.KindNamed(key.Kind)
	return ok
}
