package cluster

import (
	"maps"

	"github.com/berth-run/berth/internal/object"
)

// replace makes items all that there is of the follower's key. A follower that
// was ended tells nothing any more.
func (f *follower) replace(items []object.Value) {
	c := f.cluster
	for i := range items {
		items[i] = trim(items[i])
	}
	f.settled = len(items) == 1 && settled(items[0])
	state := ""
	if len(items) == 1 {
		state = string(items[0].GetUID()) + "/" + items[0].GetResourceVersion()
	}
	c.mu.Lock()
	if c.followers[f.key] != f {
		c.mu.Unlock()
		return
	}
	first := !c.heard[f.key]
	switch {
	case !inTable(f.key):
		set := make(map[string]object.Value, len(items))
		for _, v := range items {
			set[v.GetName()] = v
		}
		first = first || !same(c.sets[f.key], set)
		c.sets[f.key] = set
	case len(items) == 0:
		c.cfg.Sink.Drop(f.key)
		c.nameLocked(f.key, nil)
	default:
		if state != f.told {
			f.looks = 0
			c.cfg.Sink.Put(items[0])
			c.nameLocked(f.key, leadsTo(items[0]))
		}
		first = false // the table shows it
	}
	f.told, c.heard[f.key] = state, true
	c.mu.Unlock()
	if first {
		c.cfg.Changed(map[object.Key]bool{f.key: true})
	}
}

// change notes one object of a collection.
func (f *follower) change(v object.Value, gone bool) {
	c := f.cluster
	c.mu.Lock()
	if c.followers[f.key] != f {
		c.mu.Unlock()
		return
	}
	set := maps.Clone(c.sets[f.key])
	if set == nil {
		set = map[string]object.Value{}
	}
	if gone {
		delete(set, v.GetName())
	} else {
		set[v.GetName()] = trim(v)
	}
	c.sets[f.key] = set
	c.mu.Unlock()
	c.cfg.Changed(map[object.Key]bool{f.key: true})
}

func same(a, b map[string]object.Value) bool {
	return maps.EqualFunc(a, b, func(a, b object.Value) bool {
		return a.GetUID() == b.GetUID() && a.GetResourceVersion() == b.GetResourceVersion()
	})
}

// failed keeps why a try failed, and returns how many have in a row. It is told of
// once: an API server that is away, and a refusal that is over in a moment, are
// told by others.
func (f *follower) failed(err error) int {
	c := f.cluster
	c.mu.Lock()
	f.failures++
	failures, current := f.failures, c.followers[f.key] == f
	if current {
		c.trouble[f.key] = err
	}
	c.mu.Unlock()
	if current && failures == toldFailure {
		c.cfg.Log.Warn("follow an object of the cluster", "object", f.key, "err", err)
		c.cfg.Changed(map[object.Key]bool{f.key: true}) // who waits may say why
	}
	return failures
}

// toldFailure is the try whose failure is told.
const toldFailure = 5

// answered ends a row of failures. Others that failed need not wait for their
// next try any longer.
func (f *follower) answered() {
	c := f.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.failures == 0 || c.followers[f.key] != f {
		return
	}
	f.failures = 0
	delete(c.trouble, f.key)
	for _, other := range c.followers {
		if other.failures > 0 {
			signal(other.retry)
		}
	}
}
