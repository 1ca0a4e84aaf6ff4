package store

import (
	"iter"
	"maps"
	"sync"
)

// Table maps keys to values. A value must not change after Put. It is safe for concurrent use. Make it with New.
type Table[K comparable, V any] struct {
	mu       sync.Mutex
	rows     map[K]V
	shared   bool // a snapshot uses rows: copy them before the next write
	revision uint64
	all      map[*Watcher[K, V]]struct{}
	byKey    map[K]map[*Watcher[K, V]]struct{}
}

// New returns an empty table at revision 0.
func New[K comparable, V any]() *Table[K, V] {
	return &Table[K, V]{
		rows:  map[K]V{},
		all:   map[*Watcher[K, V]]struct{}{},
		byKey: map[K]map[*Watcher[K, V]]struct{}{},
	}
}

// Put sets the value of a key and returns the table's new revision. Every Put is a change, even with an equal value. A
// writer that wants no change for an equal value compares first.
func (t *Table[K, V]) Put(key K, value V) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.own()
	t.rows[key] = value
	return t.notify(Change[K, V]{Key: key, Value: value})
}

// Delete removes a key and returns the table's revision. The revision is new only if the key existed.
func (t *Table[K, V]) Delete(key K) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, ok := t.rows[key]
	if !ok {
		return t.revision
	}
	t.own()
	delete(t.rows, key)
	return t.notify(Change[K, V]{Key: key, Value: last, Deleted: true})
}

// Get returns the value of a key.
func (t *Table[K, V]) Get(key K) (V, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, ok := t.rows[key]
	return v, ok
}

// Where returns the values that match, in no particular order. It is for few values of many: after a Snapshot, the next
// write copies all rows. matches must not use the table.
func (t *Table[K, V]) Where(matches func(V) bool) (all []V) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, v := range t.rows {
		if matches(v) {
			all = append(all, v)
		}
	}
	return all
}

// Len is the number of rows.
func (t *Table[K, V]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.rows)
}

// Revision is the number of changes so far.
func (t *Table[K, V]) Revision() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.revision
}

// Snapshot returns the table as it is now. It costs nothing until the next write, which copies the rows once for all
// snapshots.
func (t *Table[K, V]) Snapshot() Snapshot[K, V] {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shared = true
	return Snapshot[K, V]{rows: t.rows, revision: t.revision}
}

// own makes rows writable: a snapshot keeps the old map.
func (t *Table[K, V]) own() {
	if t.shared {
		t.rows = maps.Clone(t.rows)
		t.shared = false
	}
}

// notify numbers a change and notifies the watchers of its key.
func (t *Table[K, V]) notify(c Change[K, V]) uint64 {
	t.revision++
	c.Revision = t.revision
	for w := range t.all {
		w.add(c)
	}
	for w := range t.byKey[c.Key] {
		w.add(c)
	}
	return t.revision
}

// Snapshot is a table at one revision. It is immutable and may be shared.
type Snapshot[K comparable, V any] struct {
	rows     map[K]V
	revision uint64
}

// Get returns the value of a key at the snapshot's revision.
func (s Snapshot[K, V]) Get(key K) (V, bool) {
	v, ok := s.rows[key]
	return v, ok
}

// Len is the number of rows.
func (s Snapshot[K, V]) Len() int { return len(s.rows) }

// Revision is the table's revision when the snapshot was taken.
func (s Snapshot[K, V]) Revision() uint64 { return s.revision }

// With returns the snapshot with rows put over its own. later is a revision that grows with each change of these rows.
// The revision of the result is the sum of both.
func (s Snapshot[K, V]) With(rows map[K]V, later uint64) Snapshot[K, V] {
	all := maps.Clone(s.rows)
	if all == nil {
		all = map[K]V{}
	}
	maps.Copy(all, rows)
	return Snapshot[K, V]{rows: all, revision: s.revision + later}
}

// All yields the rows in no particular order.
func (s Snapshot[K, V]) All() iter.Seq2[K, V] { return maps.All(s.rows) }
