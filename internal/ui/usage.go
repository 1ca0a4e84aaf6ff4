package ui

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/berth-run/berth/internal/api/client"
)

// sampling is the time between two measurements of usage while a page is open.
const sampling = 5 * time.Second

// podUsage is the usage of a pod. A missing value is unknown.
type podUsage struct {
	CPU    *uint64 `json:"cpu,omitempty"`    // in billionths of a CPU
	Memory *uint64 `json:"memory,omitempty"` // working set, in bytes
}

// usage measures the usage of pods while pages show it. It measures once for all pages.
type usage struct {
	agent *client.Client

	mu      sync.Mutex
	readers map[chan []byte]bool
	last    []byte
	running sync.WaitGroup
	stop    context.CancelFunc
}

func newUsage(agent *client.Client) *usage {
	return &usage{agent: agent, readers: map[chan []byte]bool{}}
}

// subscribe returns a channel with the latest measurement. The first subscriber starts the measuring, and the last one
// to leave ends it.
func (u *usage) subscribe(ctx context.Context) (updates <-chan []byte, leave func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	c := make(chan []byte, 1)
	if u.last != nil {
		c <- u.last
	}
	if len(u.readers) == 0 {
		measuring, stop := context.WithCancel(context.WithoutCancel(ctx))
		u.stop = stop
		u.running.Go(func() { u.run(measuring) })
	}
	u.readers[c] = true
	return c, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if delete(u.readers, c); len(u.readers) == 0 {
			u.stop()
			u.last = nil
		}
	}
}

// wait waits until nothing measures.
func (u *usage) wait() { u.running.Wait() }

// run measures until ctx ends. CPU is measured between two calls, so the second call follows soon.
func (u *usage) run(ctx context.Context) {
	next := time.NewTimer(0)
	defer next.Stop()
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		if data, err := u.measure(ctx); err == nil && ctx.Err() == nil {
			u.send(data)
		}
		next.Reset(sampling)
		if first {
			next.Reset(time.Second)
		}
	}
}

func (u *usage) measure(ctx context.Context) ([]byte, error) {
	summary, err := client.Usage(ctx, u.agent, true)
	if err != nil {
		return nil, err // the page reports that the agent is away
	}
	all := make(map[string]podUsage, len(summary.Pods))
	for i := range summary.Pods {
		p := &summary.Pods[i]
		var now podUsage
		if p.CPU != nil {
			now.CPU = p.CPU.UsageNanoCores
		}
		if p.Memory != nil {
			now.Memory = p.Memory.WorkingSetBytes
		}
		all[p.PodRef.UID] = now
	}
	return json.Marshal(all)
}

// send gives each reader a measurement. It replaces a measurement that the reader has not read yet.
func (u *usage) send(data []byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last = data
	for c := range u.readers {
		select {
		case <-c:
		default:
		}
		c <- data
	}
}

// showUsage streams the usage of all pods, by UID.
func (s *Server) showUsage(w http.ResponseWriter, r *http.Request) {
	conn, ctx, err := upgrade(w, r, ignore)
	if err != nil {
		return // upgrade has answered
	}
	defer func() { _ = conn.Close() }() // the browser may be gone already
	updates, leave := s.usage.subscribe(ctx)
	defer leave()
	for {
		select {
		case <-ctx.Done():
			finish(conn, nil)
			return
		case data := <-updates:
			if conn.WriteMessage(websocket.BinaryMessage, data) != nil {
				return
			}
		}
	}
}
