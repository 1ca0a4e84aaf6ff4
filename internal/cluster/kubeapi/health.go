package kubeapi

import (
	"sync"
	"time"

	"github.com/berth-run/berth/internal/base/store"
)

// Server is the one key of Health's table.
const Server = "kube-apiserver"

// Health says whether the API server answers. It observes the requests of the other parts.
type Health struct {
	table *store.Table[string, State]
	now   func() time.Time

	mu    sync.Mutex
	state State
	valid time.Time // failures of requests that began earlier do not count
	last  time.Time // the last response
}

func newHealth(now func() time.Time) *Health {
	return &Health{table: store.New[string, State](), now: now}
}

// State returns the current state.
func (h *Health) State() State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}

// LastAnswer returns the time of the server's last response, or zero if there was none.
func (h *Health) LastAnswer() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// Watch reports the state under the key Server when the server goes away and when it is back, but not for each
// response. The caller stops the watcher.
func (h *Health) Watch() *store.Watcher[string, State] { return h.table.WatchKey(Server) }

func (h *Health) note(o outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.state
	h.state = judge(before, h.valid, o)
	if o.Err == nil {
		h.valid, h.last = o.Ended, o.Ended
	}
	if before.Since != h.state.Since {
		h.table.Put(Server, h.state)
	}
}

// forget ignores failures of the requests that are under way now.
func (h *Health) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.valid = h.now()
}
