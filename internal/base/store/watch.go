package store

import (
	"cmp"
	"context"
	"slices"
)

// Change is the last state of a key that changed.
type Change[K comparable, V any] struct {
	Key K
	// Value is the current value, or the last one when the key was deleted.
	Value   V
	Deleted bool
	// Revision of the table when this state was written.
	Revision uint64
}

// Watcher collects what changed since it was last asked. It is for one
// goroutine, which waits on C and then calls Changes, or calls Next:
//
//	w := table.Watch()
//	defer w.Stop()
//	for {
//		select {
//		case <-w.C():
//			for _, change := range w.Changes() { ... }
//		case <-ctx.Done():
//			return ctx.Err()
//		}
//	}
//
// A key that was put and deleted between two looks is seen as deleted; one that
// was deleted and put again is seen with its new value only.
type Watcher[K comparable, V any] struct {
	table   *Table[K, V]
	key     *K            // nil: every key
	wake    chan struct{} // holds one token while pending is not empty; sent under table.mu
	pending map[K]Change[K, V]
}

// Watch reports every key. The rows that exist already are its first changes,
// so there is no moment between listing and watching.
func (t *Table[K, V]) Watch() *Watcher[K, V] {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.watcher()
	t.all[w] = struct{}{}
	for k, v := range t.rows {
		w.add(Change[K, V]{Key: k, Value: v, Revision: t.revision})
	}
	return w
}

// WatchKey reports one key. Its present state is the first change, as deleted
// with a zero value when the key is not there.
func (t *Table[K, V]) WatchKey(key K) *Watcher[K, V] {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.watcher()
	w.key = &key
	if t.byKey[key] == nil {
		t.byKey[key] = map[*Watcher[K, V]]struct{}{}
	}
	t.byKey[key][w] = struct{}{}
	v, ok := t.rows[key]
	w.add(Change[K, V]{Key: key, Value: v, Deleted: !ok, Revision: t.revision})
	return w
}

func (t *Table[K, V]) watcher() *Watcher[K, V] {
	return &Watcher[K, V]{table: t, wake: make(chan struct{}, 1), pending: map[K]Change[K, V]{}}
}

// add notes a change; the table's lock is held.
func (w *Watcher[K, V]) add(c Change[K, V]) {
	w.pending[c.Key] = c
	select {
	case w.wake <- struct{}{}:
	default: // the reader has a token already
	}
}

// C delivers a token when there are changes to look at. It is never closed.
func (w *Watcher[K, V]) C() <-chan struct{} { return w.wake }

// Changes returns the last state of each key that changed since the previous
// call, oldest revision first; nil when nothing did.
func (w *Watcher[K, V]) Changes() []Change[K, V] {
	w.table.mu.Lock()
	select {
	case <-w.wake: // read without waiting on C: its token goes with the changes
	default:
	}
	pending := w.pending
	if len(pending) == 0 {
		w.table.mu.Unlock()
		return nil
	}
	w.pending = map[K]Change[K, V]{}
	w.table.mu.Unlock()

	changes := make([]Change[K, V], 0, len(pending))
	for _, c := range pending {
		changes = append(changes, c)
	}
	slices.SortFunc(changes, func(a, b Change[K, V]) int { return cmp.Compare(a.Revision, b.Revision) })
	return changes
}

// Next waits until something changed and returns it, or ctx's error.
func (w *Watcher[K, V]) Next(ctx context.Context) ([]Change[K, V], error) {
	for {
		if changes := w.Changes(); changes != nil {
			return changes, nil
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Stop ends the watch. What was not read yet is dropped; C stays silent.
func (w *Watcher[K, V]) Stop() {
	t := w.table
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, w)
	if w.key != nil {
		delete(t.byKey[*w.key], w)
		if len(t.byKey[*w.key]) == 0 {
			delete(t.byKey, *w.key)
		}
	}
	w.pending = nil
	select {
	case <-w.wake:
	default:
	}
}
