package store

import (
	"cmp"
	"context"
	"slices"

	"github.com/berth-run/berth/internal/base/wake"
)

// Change is the last state of a key that has changed.
type Change[K comparable, V any] struct {
	Key K
	// Value is the current value, or the last one if the key was deleted.
	Value   V
	Deleted bool
	// Revision of the table when this state was written.
	Revision uint64
}

// Watcher collects the changes since the last call of Changes or Next. It is for one goroutine, which either waits on C
// and then calls Changes, or calls Next:
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
// A key that was put and deleted between two calls is reported as deleted. A key that was deleted and put again is
// reported with its new value only.
type Watcher[K comparable, V any] struct {
	table   *Table[K, V]
	key     *K          // nil: every key
	wake    wake.Signal // raised while pending is not empty; changes under table.mu
	pending map[K]Change[K, V]
}

// Watch watches every key. The existing rows are its first changes, so that there is no gap between listing and
// watching.
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

// WatchKey watches one key. Its present state is the first change. If the key does not exist, that change is a deletion
// with a zero value.
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
	return &Watcher[K, V]{table: t, wake: wake.New(), pending: map[K]Change[K, V]{}}
}

// add records a change. It needs the table's lock.
func (w *Watcher[K, V]) add(c Change[K, V]) {
	w.pending[c.Key] = c
	w.wake.Wake()
}

// C receives when there are changes. It is never closed.
func (w *Watcher[K, V]) C() <-chan struct{} { return w.wake.C() }

// Changes returns the last state of each key that has changed since the previous call, oldest revision first. It
// returns nil if nothing has changed.
func (w *Watcher[K, V]) Changes() []Change[K, V] {
	w.table.mu.Lock()
	select {
	case <-w.wake.C(): // the caller did not wait on C: lower the signal with the changes
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

// Next waits for a change and returns the changes, or ctx's error.
func (w *Watcher[K, V]) Next(ctx context.Context) ([]Change[K, V], error) {
	for {
		if changes := w.Changes(); changes != nil {
			return changes, nil
		}
		select {
		case <-w.wake.C():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Stop ends the watch and drops unread changes. C receives nothing any more.
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
	w.wake.Clear()
}
