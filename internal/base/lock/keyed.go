package lock

import (
	"context"
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

// Len returns the number of keys whose lock a goroutine holds or waits for.
func (k *Keyed) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.locks)
}
