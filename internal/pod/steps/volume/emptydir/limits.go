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
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/pod/steps/volume"
)

// Limits evicts pods whose volumes on disk have outgrown their sizeLimit. Most file systems have no quota for a
// directory, so Limits measures each volume from time to time (nextMeasurement). Deleted files that are still open do
// not count.
type Limits struct {
	opts  LimitOptions
	added wake.Signal

	mu      sync.Mutex
	volumes map[string]*limited // by target
}

// pods ends pods.
type pods interface {
	// Evict ends a pod. It may be called again for the same pod.
	Evict(p *corev1.Pod, message string)
}

// LimitOptions are the options of Limits. All are required.
type LimitOptions struct {
	Pods pods
	Log  *slog.Logger
}

type limited struct {
	pod   *corev1.Pod
	name  string
	text  string // the limit as the pod spells it
	limit int64  // bytes
	due   time.Time
}

// NewLimits makes a Limits without volumes.
func NewLimits(o LimitOptions) *Limits {
	return &Limits{opts: o, added: wake.New(), volumes: map[string]*limited{}}
}

// add starts the measurement of a volume.
func (l *Limits) add(r volume.Request) {
	limit := r.Volume.EmptyDir.SizeLimit
	l.mu.Lock()
	l.volumes[r.Target] = &limited{
		pod: r.Pod, name: r.Volume.Name, text: limit.String(), limit: limit.Value(),
		due: time.Now().Add(firstMeasurement),
	}
	l.mu.Unlock()
	l.added.Wake()
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
			l.measure(ctx, target, v)
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
		case <-l.added.C():
		case <-due:
		}
	}
}

// next returns a copy of the volume to measure next, or nil if there is none.
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

func (l *Limits) measure(ctx context.Context, target string, v *limited) {
	began := time.Now()
	used, err := diskusage.Measure(ctx, target)
	took := time.Since(began)
	switch {
	case errors.Is(err, diskusage.ErrTooDeep):
		l.opts.Pods.Evict(v.pod,
			fmt.Sprintf("Usage of EmptyDir volume %q cannot be measured against the limit %q: %v.", v.name, v.text,
				err))
	case err == nil && used.Bytes > v.limit:
		l.opts.Pods.Evict(v.pod, fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q.", v.name, v.text))
	case err != nil && ctx.Err() == nil && !errors.Is(err, fs.ErrNotExist):
		l.opts.Log.Warn("cannot measure emptyDir volume, retrying", "pod", v.pod.Namespace+"/"+v.pod.Name, "volume",
			v.name, "err",
			err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if current := l.volumes[target]; current != nil && current.pod.UID == v.pod.UID {
		current.due = time.Now().Add(nextMeasurement(took))
	}
}
