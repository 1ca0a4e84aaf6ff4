package lock

import (
	"context"
	"slices"
	"sync"
)

// Keyed has one lock for each key, within this process. Its zero value is ready to use. A key takes memory only while a
// goroutine holds its lock or waits for it.
type Keyed struct {
	mu    sync.Mutex
	locks map[string]*keyLock
}

type keyLock struct {
	held  chan struct{}
	users int // that hold the lock or wait for it
}

// Lock waits until the caller alone holds the lock of key. It returns the context's error if that ends before.
func (k *Keyed) Lock(ctx context.Context, key string) (unlock func(), err error) {
	k.mu.Lock()
	if k.locks == nil {
		k.locks = map[string]*keyLock{}
	}
	lock := k.locks[key]
	if lock == nil {
		lock = &keyLock{held: make(chan struct{}, 1)}
		k.locks[key] = lock
	}
	lock.users++
	k.mu.Unlock()
	leave := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if lock.users--; lock.users == 0 {
			delete(k.locks, key)
		}
	}
	select {
	case lock.held <- struct{}{}:
		return func() { <-lock.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// LockAll waits until the caller alone holds the locks of all these keys. Several callers with common keys do not block
// each other for ever. It returns the context's error, and holds no lock, if that ends before.
func (k *Keyed) LockAll(ctx context.Context, keys ...string) (unlock func(), err error) {
	var locked []func()
	unlock = func() {
		for _, u := range locked {
			u()
		}
	}
	for _, key := range slices.Compact(slices.Sorted(slices.Values(keys))) { // a fixed order prevents deadlocks
		u, err := k.Lock(ctx, key)
		if err != nil {
			unlock()
			return nil, err
		}
		locked = append(locked, u)
	}
	return unlock, nil
}

// Len returns the number of keys whose lock a goroutine holds or waits for.
func (k *Keyed) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.locks)
}
