package history

import (
	"context"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/berth-run/berth/internal/base/wake"
)

// Options of a History. All are required except Now.
type Options struct {
	// Dir has the file of the samples. Run creates it.
	Dir string
	// Host is the root below which proc and sys are mounted: /.
	Host string
	// Disk is a directory on the file system whose use is measured.
	Disk string
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// History has the samples of the last day. Its methods may be called from any goroutine, also without Run.
type History struct {
	opts   Options
	reader reader

	mu       sync.Mutex
	pending  []Sample // not in the file yet, oldest first
	watchers map[wake.Signal]bool
}

// New returns a History of the samples in the file.
func New(o Options) *History {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &History{opts: o, reader: reader{host: o.Host, disk: o.Disk, disks: map[string]bool{}},
		watchers: map[wake.Signal]bool{}}
}

func (h *History) path() string { return filepath.Join(h.opts.Dir, "samples") }

// Since returns the samples after a time in Unix seconds, oldest first. It reads the file, because samples in memory
// would cost memory while no client asks for them.
func (h *History) Since(after int64) []Sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	content, err := os.ReadFile(h.path())
	if err != nil {
		content = nil // nothing was written yet, and what is pending is there
	}
	all := append(decodeAll(content, h.opts.Now().Unix()), h.pending...)
	return slices.DeleteFunc(all, func(s Sample) bool { return s.Time <= after })
}

// Watch yields the samples after a time, and then new ones as they come, until ctx ends.
func (h *History) Watch(ctx context.Context, after int64) iter.Seq[[]Sample] {
	return func(yield func([]Sample) bool) {
		changed := wake.New()
		h.mu.Lock()
		h.watchers[changed] = true
		h.mu.Unlock()
		defer func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			delete(h.watchers, changed)
		}()
		for {
			some := h.Since(after)
			if len(some) > 0 {
				after = some[len(some)-1].Time
			}
			if !yield(some) {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-changed.C():
			}
		}
	}
}

// add adds a sample and returns how many are not in the file. While the file cannot be written, the last Kept remain.
func (h *History) add(s Sample) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.pending) == Kept {
		h.pending = slices.Delete(h.pending, 0, flush)
	}
	h.pending = append(h.pending, s)
	for w := range h.watchers {
		w.Wake()
	}
	return len(h.pending)
}
