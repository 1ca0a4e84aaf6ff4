package wait

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/record/timeline"
)

// statuses are computed again after a change.
type statuses interface {
	// Mark says that the status of a pod must be computed again. It must not block.
	Mark(types.UID)
}

// place is where a wait shows: a container, or a whole pod if container is empty.
type place struct {
	uid       types.UID
	container string
}

// Waits holds the present waits. Its methods may be called from any goroutine.
type Waits struct {
	statuses statuses

	mu       sync.Mutex
	messages map[place]string
}

// New returns Waits without a wait.
func New(s statuses) *Waits { return &Waits{statuses: s, messages: map[place]string{}} }

// Begin records what a container waits for until done is called: in the timeline at once, and in the status after
// quiet. An empty container stands for the whole pod.
func (w *Waits) Begin(ctx context.Context, uid types.UID, container, what string, quiet time.Duration) (done func()) {
	ended := timeline.Wait(ctx, what)
	at, over, shown := place{uid, container}, false, false
	timer := time.AfterFunc(quiet, func() {
		w.mu.Lock()
		shown = !over
		notify := shown
		if shown {
			w.messages[at] = "waiting for " + what
		}
		w.mu.Unlock()
		if notify {
			w.statuses.Mark(uid)
		}
	})
	return func() {
		ended()
		timer.Stop()
		w.mu.Lock()
		over = true
		delete(w.messages, at)
		notify := shown
		w.mu.Unlock()
		if notify {
			w.statuses.Mark(uid)
		}
	}
}

// Message returns the present wait of a container, or of the whole pod if container is empty.
func (w *Waits) Message(uid types.UID, container string) (message string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	message, ok = w.messages[place{uid, container}]
	return message, ok
}
