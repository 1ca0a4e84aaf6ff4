package live

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/base/wake"
)

// Changes has the broadcasts that wake when an answer changes, by the name of the answer.
type Changes map[string][]*wake.Broadcast

// The names of the answers.
const (
	Images   = "images"   // GET /berth/v1/images
	Starts   = "starts"   // GET /berth/v1/timelines
	Topology = "topology" // GET /berth/v1/topology
)

// gap is the shortest time between two lines. It bounds how often clients ask again while much changes.
const gap = 200 * time.Millisecond

// Stream answers GET /berth/v1/changes: a line with all answers, because a client that connects again may have missed
// changes, and then a line with the changed answers after each change.
func (c Changes) Stream(w http.ResponseWriter, r *http.Request) error {
	ctx, stop := context.WithCancel(r.Context())
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop()
	changed := wake.NewSet[string]()
	for name, sources := range c {
		for _, source := range sources {
			next := source.C()
			watching.Go(func() { watch(ctx, source, next, func() { changed.Add(name) }) })
		}
		changed.Add(name)
	}
	w.Header().Set("Content-Type", "application/json")
	lines, flusher := json.NewEncoder(w), http.NewResponseController(w)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed.C():
		}
		pause.Reset(gap)
		of := slices.Sorted(maps.Keys(changed.Take()))
		if len(of) == 0 {
			continue // the line before had them
		}
		if lines.Encode(api.Changes{TypeMeta: api.Type("Changes"), Of: of}) != nil || flusher.Flush() != nil {
			return nil // the client is gone
		}
	}
}

// watch calls do after each change of a source, beginning with the one that closes next, until ctx ends.
func watch(ctx context.Context, source *wake.Broadcast, next <-chan struct{}, do func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-next:
		}
		next = source.C()
		do()
	}
}
