package status

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// turns lets one goroutine at a time publish a pod, so that a status computed from older facts never replaces one
// computed from newer facts.
type turns struct {
	mu   sync.Mutex
	pods map[types.UID]*turn
}

type turn struct {
	free  chan struct{} // holds a token while no goroutine has the turn
	users int           // goroutines that have the turn or wait for it
}

// take waits for the turn of a pod. The caller must give it back with the returned function.
func (t *turns) take(uid types.UID) (giveBack func()) {
	t.mu.Lock()
	one := t.pods[uid]
	if one == nil {
		one = &turn{free: make(chan struct{}, 1)}
		one.free <- struct{}{}
		t.pods[uid] = one
	}
	one.users++
	t.mu.Unlock()
	<-one.free
	return func() {
		t.mu.Lock()
		if one.users--; one.users == 0 {
			delete(t.pods, uid)
		}
		t.mu.Unlock()
		one.free <- struct{}{}
	}
}
