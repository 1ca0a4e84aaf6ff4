package kubeapi

import (
	"sync"
	"time"

	"github.com/berth-run/berth/internal/base/store"
)

// Server is the one key of Health's table.
const Server = "kube-apiserver"

// Health says whether the API server answers, as seen by the requests that are
// sent anyway.
type Health struct {
	table *store.Table[string, State]
	now   func() time.Time

	mu    sync.Mutex
	state State
	heard time.Time // the last answer, or the last forget
	last  time.Time // the last answer
}

func newHealth(now func() time.Time) *Health {
	return &Health{table: store.New[string, State](), now: now}
}

// State is whether the server answers now.
func (h *Health) State() State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}

// Heard is when the server answered last; zero: not since the start.
func (h *Health) Heard() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// Watch reports the state under the key Server when the server goes away and when
// it is back, not each answer. The caller stops it.
func (h *Health) Watch() *store.Watcher[string, State] { return h.table.WatchKey(Server) }

func (h *Health) note(o outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.state
	h.state = judge(before, h.heard, o)
	if o.Err == nil {
		h.heard, h.last = o.Ended, o.Ended
	}
	if before.Since != h.state.Since {
		h.table.Put(Server, h.state)
	}
}

// forget lets failures of what is under way say nothing.
func (h *Health) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heard = h.now()
}
