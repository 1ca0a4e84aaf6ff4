package storage

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
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
	// Counted returns the usage that the file system itself counts of a pod, without a walk: emptyDirs, and their sum
	// as the Total. It is at most what the pod stores. ok is false if the file system counts none of them, and will
	// not.
	Counted(p *corev1.Pod) (used Usage, ok bool, err error)
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
	states map[look]*state
}

// look is one of the two ways to look at a pod with limits: to measure it, or to read what the file system counts. The
// second takes microseconds, and so it is repeated more often.
type look struct {
	uid     types.UID
	counted bool
}

func looks(uid types.UID) []look { return []look{{uid, false}, {uid, true}} }

// state has the results of one kind of look at a pod.
type state struct {
	measured
	// running: a goroutine measures the pod. evicted: it exceeds a limit, and ends.
	running, evicted bool
	failed           string // the last error, so that the log has it once
}

// New makes Limits that have measured nothing.
func New(o Options) *Limits {
	return &Limits{o: o, over: wake.New(), states: map[look]*state{}}
}

// Run measures pods until ctx ends. Each pod is measured in a goroutine of its own: a pod with many files, or with a
// disk that does not answer, must not delay the others.
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
	var again time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-alarm.C():
		case <-l.over.C():
		case <-l.o.Pods.Changed():
			// Each look is at all pods, and a burst of pods changes them many times.
			now := time.Now()
			if gathered := now.Add(firstMeasurement / 2); again.IsZero() || again.After(gathered) {
				again = gathered
				alarm.Set(again, now)
			}
			continue
		}
		disk := l.disk()
		now := time.Now()
		var due map[look]*corev1.Pod
		due, again = l.due(now, disk)
		for kind, p := range due {
			running.Go(func() {
				guard.About(pod.SubjectOf(p).String(), func() { l.measure(ctx, p, kind, disk) })
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

// due returns the pods to measure now, and marks their measurements as running. again is the time of the next look.
func (l *Limits) due(now time.Time, disk int64) (due map[look]*corev1.Pod, again time.Time) {
	var limited []*corev1.Pod
	for _, p := range l.o.Pods.Running() {
		if Limited(p) {
			limited = append(limited, p)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.states
	l.states, due = make(map[look]*state, 2*len(limited)), map[look]*corev1.Pod{}
	for _, p := range limited {
		for _, kind := range looks(p.UID) {
			s := before[kind]
			if s == nil { // its first look is due when period has passed
				s = &state{measured: measured{at: now.Add(firstMeasurement - period), disk: disk, room: unlimited}}
			}
			l.states[kind] = s
			if s.running || s.evicted {
				continue
			}
			is, at := s.next(now, disk, len(limited))
			if is {
				s.running = true
				due[kind] = p
			} else if again.IsZero() || at.Before(again) {
				again = at
			}
		}
	}
	return due, again
}

// measure looks at a pod, and evicts it if it exceeds a limit.
func (l *Limits) measure(ctx context.Context, p *corev1.Pod, kind look, disk int64) {
	worked := threadTime()
	m := measured{disk: disk, room: unlimited}
	ok := true
	var used Usage
	var err error
	if kind.counted {
		used, ok, err = l.o.Pods.Counted(p)
		m.counted = true
	} else {
		used, err = l.o.Pods.Measure(ctx, p)
	}
	m.at, m.took = time.Now(), worked()
	if ok {
		m.room = Room(p, used)
	}
	failed := ""
	if err != nil {
		failed = err.Error()
	}
	excess := Exceeded(p, used)
	if excess != nil && l.evict(p, *excess) {
		l.o.Log.Warn("pod evicted", "pod", pod.FullName(p), "signal", excess.Signal, "cause", excess.Message)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.over.Wake()
	s := l.states[kind]
	if s == nil {
		return // the pod has ended
	}
	if err != nil && failed != s.failed && ctx.Err() == nil {
		l.o.Log.Warn("cannot measure all files of a pod, retrying", "pod", pod.FullName(p), "err", err)
	}
	*s = state{measured: m, evicted: s.evicted, failed: failed}
}

// threadTime keeps this goroutine on its thread, and returns a function that ends this and returns how long the thread
// has worked meanwhile. A measurement may also wait, because the machine is busy or the runtime has not answered. That
// time does not count: to measure less often would not save it.
func threadTime() (worked func() time.Duration) {
	runtime.LockOSThread()
	now := func() time.Duration {
		var u unix.Rusage
		_ = unix.Getrusage(unix.RUSAGE_THREAD, &u) // fails for another argument only
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	began := now()
	return func() time.Duration {
		defer runtime.UnlockOSThread()
		return now() - began
	}
}

// evict evicts a pod once, although two looks at the pod may find at the same time that it exceeds a limit.
func (l *Limits) evict(p *corev1.Pod, e Excess) bool {
	mark := func(to bool) (changed bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, kind := range looks(p.UID) {
			if s := l.states[kind]; s != nil && s.evicted != to {
				s.evicted, changed = to, true
			}
		}
		return changed
	}
	if !mark(true) {
		return false
	}
	evicted := l.o.Pods.Evict(p, e)
	if !evicted {
		mark(false)
	}
	return evicted
}
