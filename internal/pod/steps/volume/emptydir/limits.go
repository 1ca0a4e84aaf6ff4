package emptydir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/diskusage"
	"github.com/berth-run/berth/internal/pod/steps/volume"
)

// Limits ends pods whose volumes on disk have outgrown their sizeLimit. The
// kernel has no word for it on most file systems, so the volumes are measured,
// each at a pace of its own (nextLook). Files that were deleted and are still
// open do not count.
type Limits struct {
	opts    LimitOptions
	changed chan struct{}

	mu      sync.Mutex
	volumes map[string]*limited // by target
}

// LimitOptions are what Limits needs from its surroundings. All are required.
type LimitOptions struct {
	// Evict ends a pod. It may be called again for the same one.
	Evict func(p *corev1.Pod, message string)
	Log   *slog.Logger
}

type limited struct {
	pod   *corev1.Pod
	name  string
	text  string // of the limit, as the pod spells it
	limit int64  // bytes
	due   time.Time
}

// NewLimits makes a Limits that bounds nothing yet.
func NewLimits(o LimitOptions) *Limits {
	return &Limits{opts: o, changed: make(chan struct{}, 1), volumes: map[string]*limited{}}
}

// add has a volume measured from now on.
func (l *Limits) add(r volume.Request) {
	limit := r.Volume.EmptyDir.SizeLimit
	l.mu.Lock()
	l.volumes[r.Target] = &limited{
		pod: r.Pod, name: r.Volume.Name, text: limit.String(), limit: limit.Value(), due: time.Now().Add(firstLook),
	}
	l.mu.Unlock()
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

func (l *Limits) remove(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.volumes, target)
}

// Run measures volumes, one at a time, until ctx ends.
func (l *Limits) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		target, v := l.next()
		wait := time.Duration(0)
		if v != nil {
			wait = time.Until(v.due)
		}
		if v != nil && wait <= 0 {
			l.look(ctx, target, v)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			continue
		}
		var due <-chan time.Time
		if v != nil {
			timer.Reset(wait)
			due = timer.C
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.changed:
		case <-due:
		}
	}
}

// next is the volume to be measured first, a copy; nil for none.
func (l *Limits) next() (target string, v *limited) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for path, candidate := range l.volumes {
		if v == nil || candidate.due.Before(v.due) {
			copied := *candidate
			target, v = path, &copied
		}
	}
	return target, v
}

func (l *Limits) look(ctx context.Context, target string, v *limited) {
	began := time.Now()
	used, err := diskusage.Measure(ctx, target)
	took := time.Since(began)
	switch {
	case errors.Is(err, diskusage.ErrTooDeep):
		l.opts.Evict(v.pod,
			fmt.Sprintf("Usage of EmptyDir volume %q cannot be measured against the limit %q: %v.", v.name, v.text,
				err))
	case err == nil && used.Bytes > v.limit:
		l.opts.Evict(v.pod, fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q.", v.name, v.text))
	case err != nil && ctx.Err() == nil && !errors.Is(err, fs.ErrNotExist):
		l.opts.Log.Warn("measure an emptyDir volume", "pod", v.pod.Namespace+"/"+v.pod.Name, "volume", v.name, "err",
			err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.volumes[target]; now != nil && now.pod.UID == v.pod.UID {
		now.due = time.Now().Add(nextLook(took))
	}
}
