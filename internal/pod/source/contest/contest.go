package contest

import (
	"cmp"
	"maps"
	"slices"
)

// Claim is something that an origin wants.
type Claim[K, V comparable] struct {
	Value V
	// Keys are the names that the claim needs for itself, at least one. The first key names the claim within its
	// origin. While the origin wants that key, the claim keeps its place in the order.
	Keys []K
	// Rank comes before the order: of two claims, the one with the lower rank wins. Later ranks are for origins that
	// never take a key from another one.
	Rank int
}

// Contest holds the claims of all origins. One goroutine at a time may use it. Make it with New.
type Contest[K, V comparable] struct {
	origins map[string][]*entry[K, V]
	byKey   map[K][]*entry[K, V]
	lost    map[*entry[K, V]]struct{}
	last    uint64
}

// entry is a claim in the contest.
type entry[K, V comparable] struct {
	Claim[K, V]
	origin string
	order  uint64 // when its origin first wanted its first key
	index  int    // within its origin

	// winner is the claim that has one of this claim's keys: this one itself if it won. key is the first such key.
	winner *entry[K, V]
	key    K
}

// Loss is a claim that did not win.
type Loss[K, V comparable] struct {
	Value V
	// Key is the first key that another claim has, and Winner is that claim.
	Key    K
	Winner V
}

// New returns a contest without claims.
func New[K, V comparable]() *Contest[K, V] {
	return &Contest[K, V]{
		origins: map[string][]*entry[K, V]{}, byKey: map[K][]*entry[K, V]{}, lost: map[*entry[K, V]]struct{}{},
	}
}

// Put replaces the claims of an origin. It returns the values whose claims may have won or lost by that: those that are
// gone, the new ones, and the others that share keys with them. Those that are gone come first, then the others in the
// order of their claims.
func (c *Contest[K, V]) Put(origin string, claims ...Claim[K, V]) (touched []V) {
	was := c.origins[origin]
	old := make(map[K]*entry[K, V], len(was))
	for _, e := range was {
		if old[e.Keys[0]] == nil {
			old[e.Keys[0]] = e
		}
	}
	now := make([]*entry[K, V], len(claims))
	kept := make(map[*entry[K, V]]bool, len(claims))
	var changed []*entry[K, V]
	for i, claim := range claims {
		before := old[claim.Keys[0]]
		if before != nil && !kept[before] && before.same(claim) {
			before.index = i
			now[i], kept[before] = before, true
			continue
		}
		now[i] = &entry[K, V]{Claim: claim, origin: origin, index: i, order: c.orderOf(before, now[:i], claim.Keys[0])}
		changed = append(changed, now[i])
	}
	for _, e := range was {
		if !kept[e] {
			changed = append(changed, e)
			touched = append(touched, e.Value)
			c.remove(e)
		}
	}
	for _, e := range now {
		if !kept[e] {
			c.add(e)
		}
	}
	if c.origins[origin] = now; len(now) == 0 {
		delete(c.origins, origin)
	}
	return append(touched, c.decide(changed)...)
}

// same reports whether a claim is the one of the entry.
func (e *entry[K, V]) same(claim Claim[K, V]) bool {
	return e.Value == claim.Value && e.Rank == claim.Rank && slices.Equal(e.Keys, claim.Keys)
}

// orderOf returns the place of an origin's claim whose first key is key. before is the origin's claim of that key until
// now, and earlier are its other claims. An origin may claim a key twice.
func (c *Contest[K, V]) orderOf(before *entry[K, V], earlier []*entry[K, V], key K) uint64 {
	if before != nil {
		return before.order
	}
	for _, e := range earlier {
		if e.Keys[0] == key {
			return e.order
		}
	}
	c.last++
	return c.last
}

func (c *Contest[K, V]) add(e *entry[K, V]) {
	for _, key := range e.Keys {
		c.byKey[key] = append(c.byKey[key], e)
	}
}

func (c *Contest[K, V]) remove(e *entry[K, V]) {
	delete(c.lost, e)
	for _, key := range e.Keys {
		rest := slices.DeleteFunc(c.byKey[key], func(o *entry[K, V]) bool { return o == e })
		if c.byKey[key] = rest; len(rest) == 0 {
			delete(c.byKey, key)
		}
	}
}

// decide decides about all claims that share keys with the changed ones, directly or through other claims.
func (c *Contest[K, V]) decide(changed []*entry[K, V]) (touched []V) {
	seen := map[K]bool{}
	group := map[*entry[K, V]]bool{}
	for todo := changed; len(todo) > 0; {
		e := todo[0]
		todo = todo[1:]
		for _, key := range e.Keys {
			if seen[key] {
				continue
			}
			seen[key] = true
			for _, other := range c.byKey[key] {
				if !group[other] {
					group[other] = true
					todo = append(todo, other)
				}
			}
		}
	}
	has := make(map[K]*entry[K, V], len(seen))
	for _, e := range slices.SortedFunc(maps.Keys(group), compare[K, V]) {
		e.settle(has)
		if delete(c.lost, e); e.winner != e {
			c.lost[e] = struct{}{}
		}
		touched = append(touched, e.Value)
	}
	return touched
}

// compare orders claims: the first that claims a key gets it.
func compare[K, V comparable](a, b *entry[K, V]) int {
	return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.order, b.order), cmp.Compare(a.index, b.index))
}

// settle gives the claim its keys if it can have all of them. has are the claims before it that won, by key.
func (e *entry[K, V]) settle(has map[K]*entry[K, V]) {
	for _, key := range e.Keys {
		if other := has[key]; other != nil {
			e.winner, e.key = other, key
			return
		}
	}
	e.winner = e
	for _, key := range e.Keys {
		has[key] = e
	}
}

// Winner returns the value of the claim that has a key, and its origin.
func (c *Contest[K, V]) Winner(key K) (v V, origin string, ok bool) {
	for _, e := range c.byKey[key] {
		if e.winner == e {
			return e.Value, e.origin, true
		}
	}
	return v, "", false
}

// Claims returns the values of all claims of a key, in no particular order.
func (c *Contest[K, V]) Claims(key K) (all []V) {
	for _, e := range c.byKey[key] {
		all = append(all, e.Value)
	}
	return all
}

// Has reports whether an origin claims a key, whether it gets it or not.
func (c *Contest[K, V]) Has(origin string, key K) bool {
	return slices.ContainsFunc(c.byKey[key], func(e *entry[K, V]) bool { return e.origin == origin })
}

// Lost returns the claims that did not win, in their order.
func (c *Contest[K, V]) Lost() (all []Loss[K, V]) {
	for _, e := range slices.SortedFunc(maps.Keys(c.lost), compare[K, V]) {
		all = append(all, Loss[K, V]{Value: e.Value, Key: e.key, Winner: e.winner.Value})
	}
	return all
}
