package dockerstats

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/berth-run/berth/internal/base/diskusage"
	"github.com/berth-run/berth/internal/base/wake"
)

const (
	// measurePeriod is the least time between two measurements of a layer.
	measurePeriod = time.Minute
	// measureShare is the least time to the next measurement, as a multiple of the last measurement's duration.
	measureShare = 20
	// measureTimeout limits one measurement, so that the other layers have their turn.
	measureTimeout = time.Minute
)

// UpperDir finds the directory of the writable layer of a process in its mounts, which proc has. It is empty if there
// is none.
func UpperDir(proc string, pid int) string {
	mounts, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "mountinfo"))
	if err != nil {
		return ""
	}
	return upperOf(string(mounts))
}

// layers has the last sizes of writable layers, by container.
type layers struct {
	now     func() time.Time
	log     *slog.Logger
	measure func(context.Context, string) (diskusage.Usage, error)
	due     *wake.Set[string]

	mu    sync.Mutex
	known map[string]*layer
}

// layer is the writable layer of a container.
type layer struct {
	dir       string
	requested time.Time // by the last request
	next      time.Time // of the next measurement, at the earliest
	// size and at are the last measurement; at is zero if there is none.
	size diskusage.Usage
	at   time.Time
}

func newLayers(now func() time.Time, log *slog.Logger) *layers {
	return &layers{now: now, log: log, measure: diskusage.Measure, due: wake.NewSet[string](),
		known: map[string]*layer{}}
}

// of returns the last size of a layer and its time. It queues a measurement if one is due.
func (l *layers) of(id, dir string) (size diskusage.Usage, at time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	one := l.known[id]
	if one == nil || one.dir != dir {
		one = &layer{dir: dir}
		l.known[id] = one
	}
	one.requested = now
	if !now.Before(one.next) {
		one.next = now.Add(measurePeriod)
		l.due.Add(id)
	}
	return one.size, one.at, !one.at.IsZero()
}

// run measures layers, one at a time, until ctx ends.
func (l *layers) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.due.C():
		}
		for id := range l.due.Take() {
			l.one(ctx, id) // fails at once when ctx has ended
		}
		l.forget()
	}
}

// one measures a layer. If the measurement fails, the layer keeps its previous size.
func (l *layers) one(ctx context.Context, id string) {
	l.mu.Lock()
	one := l.known[id]
	l.mu.Unlock()
	if one == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	began := time.Now()
	size, err := l.measure(ctx, one.dir)
	took := time.Since(began)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, context.Canceled) {
		l.log.Warn("cannot measure the writable layer of a container, reporting its last size", "container", id,
			"err", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	one.next = now.Add(max(measurePeriod, measureShare*took))
	if err == nil {
		one.size, one.at = size, now
	}
}

// forget drops the layers that no request asks for.
func (l *layers) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, one := range l.known {
		if l.now().Sub(one.requested) > forgetAfter {
			delete(l.known, id)
		}
	}
}
