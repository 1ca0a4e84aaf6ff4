package storage

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/guard"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/pod"
)

// Pods are the pods of this node.
type Pods interface {
	// Running returns the pods that run and may be evicted.
	Running() []*corev1.Pod
	// Measure returns how much a pod stores. If the pod itself makes a volume impossible to measure, EmptyDir.Err says
	// why.
	Measure(ctx context.Context, p *corev1.Pod) (Usage, error)
	// Disk returns how many bytes of the pods' file systems are in use.
	Disk() (int64, error)
	// Evict ends a pod. It returns false if the pod ends already.
	Evict(p *corev1.Pod, e Excess) bool
	// Changed receives when a pod may have started or ended.
	Changed() <-chan struct{}
}

// Options of Limits. All are required but Off.
type Options struct {
	Pods Pods
	// Off ignores all limits (localStorageCapacityIsolation: false).
	Off bool
	// Ready is closed when the pods that an earlier agent left are known.
	Ready <-chan struct{}
	Log   *slog.Logger
}

// Limits evicts pods that exceed a limit of local storage.
type Limits struct {
	o    Options
	over wake.Signal // a measurement is over

	unread string // the last error of Disk, so that the log has it once

	mu     sync.Mutex
	states map[types.UID]*state
}

// state is what is known of a pod with limits.
type state struct {
	measured
	// running: a goroutine measures the pod. evicted: it exceeds a limit, and ends.
	running, evicted bool
	failed           string // the last error, so that the log has it once
}

// New makes Limits that have measured nothing.
func New(o Options) *Limits {
	return &Limits{o: o, over: wake.New(), states: map[types.UID]*state{}}
}

// Run measures pods until ctx ends. Each is measured in a goroutine of its own, because a pod with many files, or one
// whose disk does not answer, must not delay the others.
func (l *Limits) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-l.o.Ready:
	}
	if l.o.Off {
		<-ctx.Done()
		return ctx.Err()
	}
	var running sync.WaitGroup
	defer running.Wait()
	alarm := wake.NewAlarm()
	defer alarm.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-alarm.C():
		case <-l.over.C():
		case <-l.o.Pods.Changed():
		}
		disk := l.disk()
		now := time.Now()
		due, again := l.due(now, disk)
		for _, p := range due {
			running.Go(func() {
				guard.About(pod.SubjectOf(p).String(), func() { l.measure(ctx, p, disk) })
			})
		}
		alarm.Set(again, now)
	}
}

// disk returns how many bytes are in use, or 0 if that cannot be read: then pods are measured periodically only.
func (l *Limits) disk() int64 {
	used, err := l.o.Pods.Disk()
	text := ""
	if err != nil {
		used, text = 0, err.Error()
	}
	if text != l.unread && err != nil {
		l.o.Log.Warn("cannot read how full the disk is, measuring pods every "+period.String(), "err", err)
	}
	l.unread = text
	return used
}

// due returns the pods to measure now, and marks them as being measured. again is the time of the next look.
func (l *Limits) due(now time.Time, disk int64) (due []*corev1.Pod, again time.Time) {
	var limited []*corev1.Pod
	for _, p := range l.o.Pods.Running() {
		if Limited(p) {
			limited = append(limited, p)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.states
	l.states = make(map[types.UID]*state, len(limited))
	for _, p := range limited {
		s := before[p.UID]
		if s == nil { // its first measurement is due when period has passed
			s = &state{measured: measured{at: now.Add(firstMeasurement - period), disk: disk, room: 1 << 62}}
		}
		l.states[p.UID] = s
		if s.running || s.evicted {
			continue
		}
		is, at := s.next(now, disk, len(limited))
		if is {
			s.running = true
			due = append(due, p)
		} else if again.IsZero() || at.Before(again) {
			again = at
		}
	}
	return due, again
}

// measure measures a pod, and evicts it if it exceeds a limit.
func (l *Limits) measure(ctx context.Context, p *corev1.Pod, disk int64) {
	began := time.Now()
	used, err := l.o.Pods.Measure(ctx, p)
	now := time.Now()
	failed := ""
	if err != nil {
		failed = err.Error()
	}
	excess := Exceeded(p, used)
	evicted := excess != nil && l.o.Pods.Evict(p, *excess)
	if evicted {
		l.o.Log.Warn("pod evicted", "pod", pod.FullName(p), "signal", excess.Signal, "cause", excess.Message)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.over.Wake()
	s := l.states[p.UID]
	if s == nil {
		return // the pod has ended
	}
	if err != nil && failed != s.failed && ctx.Err() == nil {
		l.o.Log.Warn("cannot measure all files of a pod, retrying", "pod", pod.FullName(p), "err", err)
	}
	*s = state{measured: measured{at: now, took: now.Sub(began), room: Room(p, used), disk: disk}, evicted: evicted,
		failed: failed}
}
