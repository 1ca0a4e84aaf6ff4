// Package fakenode runs the fake CRI runtime of the tests at a socket, for measurements of an agent without containers.
// Its pods have real directories and cgroups, and no processes.
package fakenode

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/berth-run/berth/internal/cri/critest/fake"
)

// Start starts a runtime that serves at a socket until end is called.
func Start(socket string) (r *fake.Runtime, end func(), err error) {
	h := &host{}
	r = fake.New(h)
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", socket)
	if err != nil {
		h.end()
		return nil, nil, err
	}
	r.Serve(l)
	return r, h.end, nil
}

// host implements fake.Test.
type host struct {
	mu   sync.Mutex
	undo []func()
}

func (*host) Helper()                           {}
func (*host) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (*host) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }

// Cleanup implements fake.Test.
func (h *host) Cleanup(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.undo = append(h.undo, f)
}

func (h *host) end() {
	for _, f := range h.undo {
		f()
	}
}
