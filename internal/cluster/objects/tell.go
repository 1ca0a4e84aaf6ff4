package objects

import (
	"maps"

	"github.com/berth-run/berth/internal/model/object"
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
	defer c.unlock()
	if c.followers[f.key] != f {
		return
	}
	first := !c.heard[f.key]
	c.heard[f.key] = true
	if len(items) == 1 && inTable(f.key) {
		if state == f.told {
			return
		}
		f.looks = 0
	}
	f.told = state
	if c.take(f.key, items) || first && (len(items) == 0 || !inTable(f.key)) {
		c.tell(f.key)
	}
}

// take makes items all that is known to be there of a key, and says whether that
// is a change that the table does not show.
func (c *Cluster) take(key object.Key, items []object.Value) (news bool) {
	switch {
	case !inTable(key):
		set := make(map[string]object.Value, len(items))
		for _, v := range items {
			set[v.GetName()] = v
		}
		news = !same(c.sets[key], set)
		c.sets[key] = set
	case len(items) == 0:
		c.cfg.Sink.Drop(key)
		c.name(key, nil)
	default:
		c.cfg.Sink.Put(items[0])
		c.name(key, leadsTo(items[0]))
	}
	return news
}

// change notes one object of a collection.
func (f *follower) change(v object.Value, gone bool) {
	c := f.cluster
	c.mu.Lock()
	defer c.unlock()
	if c.followers[f.key] != f {
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
	c.tell(f.key)
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
	defer c.unlock()
	f.failures++
	if c.followers[f.key] != f {
		return f.failures
	}
	c.trouble[f.key] = err
	if f.failures == toldFailure {
		c.cfg.Log.Warn("follow an object of the cluster", "object", f.key, "err", err)
		c.tell(f.key) // who waits may say why
	}
	return f.failures
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
