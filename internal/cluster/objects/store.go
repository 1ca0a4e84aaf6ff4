package objects

import (
	"maps"

	"github.com/berth-run/berth/internal/model/object"
)

// replace makes items the complete list of the follower's key. A follower that was ended changes nothing.
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
	first := !c.received[f.key]
	c.received[f.key] = true
	if len(items) == 1 && inTable(f.key) {
		if state == f.stored {
			return
		}
		f.polls = 0
	}
	f.stored = state
	if c.store(f.key, items) || first && (len(items) == 0 || !inTable(f.key)) {
		c.report(f.key)
	}
}

// store makes items the complete list of a key. It reports whether that is a change that the table does not show.
func (c *Cluster) store(key object.Key, items []object.Value) (hidden bool) {
	switch {
	case !inTable(key):
		set := make(map[string]object.Value, len(items))
		for _, v := range items {
			set[member(v)] = v
		}
		hidden = !same(c.sets[key], set)
		c.sets[key] = set
	case len(items) == 0:
		c.cfg.Sink.Drop(key)
		c.want(key, nil)
	default:
		c.cfg.Sink.Put(items[0])
		c.want(key, leadsTo(items[0]))
	}
	return hidden
}

// change updates one object of a collection.
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
		delete(set, member(v))
	} else {
		set[member(v)] = trim(v)
	}
	c.sets[f.key] = set
	c.report(f.key)
}

// member returns the name of an object in a collection, which may be of several namespaces.
func member(v object.Value) string { return v.GetNamespace() + "/" + v.GetName() }

func same(a, b map[string]object.Value) bool {
	return maps.EqualFunc(a, b, func(a, b object.Value) bool {
		return a.GetUID() == b.GetUID() && a.GetResourceVersion() == b.GetResourceVersion()
	})
}

// failed records why a try failed, and returns the number of failures in a row. It logs one of them: other parts log
// that the API server is away, and a short refusal needs no log.
func (f *follower) failed(err error) int {
	c := f.cluster
	c.mu.Lock()
	defer c.unlock()
	f.failures++
	if c.followers[f.key] != f {
		return f.failures
	}
	c.trouble[f.key] = err
	if f.failures == loggedFailure {
		c.cfg.Log.Warn("cannot read an object of the cluster, retrying", "object", f.key, "err", err)
		c.report(f.key) // pods that wait for the object can now say why
	}
	return f.failures
}

// loggedFailure is the number of the try whose failure is logged.
const loggedFailure = 5

// answered ends a row of failures. Other followers that have failed retry at once.
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
			other.retry.Wake()
		}
	}
}
