package drift

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/cgroupfile"
)

// Reasons of events.
const (
	// CgroupRepaired: a value was changed from outside and is as it was.
	CgroupRepaired = "CgroupRepaired"
	// FailedCgroupRepair: it could not be made as it was.
	FailedCgroupRepair = "FailedCgroupRepair"
)

type events interface {
	Event(ref corev1.ObjectReference, eventType, reason, format string, args ...any)
}

// Options are what a Watch needs from its surroundings. All but Metrics and Audit
// are required.
type Options struct {
	// Audit is the time between readings of everything. Default 30 s.
	Audit   time.Duration
	Metrics prometheus.Registerer
	Events  events
	Log     *slog.Logger
}

// Watch has subjects looked after. Its methods may be called from any goroutine,
// also before Run.
type Watch struct {
	opts    Options
	repairs *prometheus.CounterVec
	failed  *prometheus.CounterVec
	wake    chan struct{}

	mu       sync.Mutex
	kernel   *inotify // nil until Run
	subjects map[string]*subject
	keys     map[int32][]string   // of the subjects by inotify's number
	dirs     map[string]string    // the same by directory
	dirty    map[string]time.Time // when which of them are to be looked at
}

// subject is what is known of one. Its suspicion and failure belong to the look at it, of which
// there is one at a time.
type subject struct {
	cgroupfile.Subject
	watches   []int32
	unwatched bool // the audit alone looks at it
	held      int  // somebody changes it who may
	looking   bool
	suspect   suspicion
	told      string // the last failure
}

// New makes a Watch of nothing.
func New(o Options) (*Watch, error) {
	w := &Watch{
		opts: o, wake: make(chan struct{}, 1), subjects: map[string]*subject{}, keys: map[int32][]string{},
		dirs: map[string]string{}, dirty: map[string]time.Time{},
		repairs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_cgroup_repairs_total",
			Help: "Cumulative number of cgroup values that were changed from outside and repaired, by level (node, " +
				"qos, pod, container) and file.",
		}, []string{"level", "file"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_cgroup_repair_failures_total",
			Help: "Cumulative number of cgroup values that were changed from outside and could not be repaired, by " +
				"level and file.",
		}, []string{"level", "file"}),
	}
	if o.Metrics == nil {
		return w, nil
	}
	if err := errors.Join(o.Metrics.Register(w.repairs), o.Metrics.Register(w.failed)); err != nil {
		return nil, fmt.Errorf("register drift metrics: %w", err)
	}
	return w, nil
}

// Watch looks after a cgroup under a key, instead of what had this key before.
func (w *Watch) Watch(key string, s cgroupfile.Subject) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(key)
	w.subjects[key] = &subject{Subject: s}
	for _, dir := range s.Group.Watched() {
		w.dirs[dir] = key
	}
	if w.kernel != nil {
		w.register(key)
	}
}

// Unwatch ends that.
func (w *Watch) Unwatch(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(key)
}

// unwatch ends it unless the key has another subject by now.
func (w *Watch) unwatch(key string, s *subject) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.subjects[key] == s {
		w.drop(key)
	}
}

// Hold is for a change by somebody who may make it: until it is released, what is
// found counts for nothing.
func (w *Watch) Hold(key string) (release func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.subjects[key]
	if s == nil {
		return func() {}
	}
	s.held++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		s.held--
		w.mark(key)
	}
}

// Watched says whether there is a subject of that key.
func (w *Watch) Watched(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.subjects[key] != nil
}

func (w *Watch) drop(key string) {
	s := w.subjects[key]
	if s == nil {
		return
	}
	for _, wd := range s.watches {
		w.keys[wd] = slices.DeleteFunc(w.keys[wd], func(k string) bool { return k == key })
		if len(w.keys[wd]) == 0 {
			delete(w.keys, wd)
			w.kernel.remove(wd)
		}
	}
	for _, dir := range s.Group.Watched() {
		if w.dirs[dir] == key {
			delete(w.dirs, dir)
		}
	}
	delete(w.subjects, key)
	delete(w.dirty, key)
}

// register asks the kernel about a subject's directories.
func (w *Watch) register(key string) {
	s := w.subjects[key]
	for _, dir := range s.Group.Watched() {
		wd, err := w.kernel.add(dir)
		if err != nil {
			if !s.unwatched && s.Group.Exists() {
				w.opts.Log.Warn("Changes of a cgroup are noticed late", "directory", dir, "err", err)
			}
			s.unwatched = true
			continue
		}
		s.watches = append(s.watches, wd)
		w.keys[wd] = append(w.keys[wd], key)
	}
	if s.unwatched {
		w.mark(key)
	}
}

// mark has a subject looked at.
func (w *Watch) mark(key string) {
	if _, ok := w.dirty[key]; !ok {
		w.dirty[key] = time.Now().Add(gather)
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// note takes in what inotify tells.
func (w *Watch) note(all []write) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range all {
		if e.lost {
			for key := range w.subjects {
				w.mark(key)
			}
		}
		for _, key := range w.keys[e.watch] {
			switch {
			case e.gone:
				w.noteGone(key, e.file)
			case concerns(e):
				w.mark(key)
			}
		}
	}
}

// noteGone takes in that a directory below a subject's was removed.
func (w *Watch) noteGone(parent, name string) {
	for _, dir := range w.subjects[parent].Group.Watched() {
		if key, ok := w.dirs[filepath.Join(dir, name)]; ok {
			w.mark(key)
		}
	}
}

// take returns the subjects to look at at that time. All but those that are held or looked at count
// where all is true.
func (w *Watch) take(now time.Time, all bool) map[string]*subject {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := map[string]*subject{}
	for key, s := range w.subjects {
		due, dirty := w.dirty[key]
		if (all || dirty && !due.After(now)) && s.held == 0 && !s.looking {
			taken[key], s.looking = s, true
			delete(w.dirty, key)
		}
	}
	return taken
}

// due is the time of the next look; false: there is none.
func (w *Watch) due() (next time.Time, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, at := range w.dirty {
		if s := w.subjects[key]; s.held == 0 && !s.looking && (!ok || at.Before(next)) {
			next, ok = at, true
		}
	}
	return next, ok
}

// looked takes in that a look has ended.
func (w *Watch) looked(e ended) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.subject.looking = false
	if _, dirty := w.dirty[e.key]; e.again && !dirty && w.subjects[e.key] == e.subject {
		w.dirty[e.key] = time.Now().Add(settle)
	}
}

func (w *Watch) isHeld(s *subject) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return s.held > 0
}

// look reads a subject back, and says whether it has to be looked at again soon.
func (w *Watch) look(ctx context.Context, key string, s *subject) (again bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !s.Group.Exists() {
		w.unwatch(key, s)
		if s.Gone != nil {
			s.Gone(ctx)
		}
		return false
	}
	found, err := s.Differs(ctx)
	if err != nil {
		if s.Group.Exists() && !errors.Is(ctx.Err(), context.Canceled) {
			w.opts.Log.Warn("read back a cgroup", "level", s.Level, "pod", s.Ref.Name, "err", err)
		}
		return false
	}
	if len(found) == 0 {
		s.told = ""
	}
	var confirmed bool
	if s.suspect, confirmed = s.suspect.next(found); !confirmed {
		return len(found) > 0
	}
	if w.isHeld(s) {
		return false // its release has it looked at again
	}
	return w.repair(ctx, s, found)
}

// repair says whether something else was changed meanwhile.
func (w *Watch) repair(ctx context.Context, s *subject, found []cgroupfile.Change) (again bool) {
	err := s.Repair(ctx, found)
	if err == nil {
		var left []cgroupfile.Change
		if left, err = s.Differs(ctx); err == nil {
			same := remaining(found, left)
			again = len(left) > len(same)
			if len(same) > 0 {
				err = fmt.Errorf("it had no effect: %s", cgroupfile.Describe(same))
			}
		}
	}
	if errors.Is(ctx.Err(), context.Canceled) || !s.Group.Exists() {
		return false
	}
	counter := w.repairs
	if err != nil {
		counter = w.failed
	}
	for _, c := range found {
		counter.WithLabelValues(s.Level, c.File).Inc()
	}
	text := cgroupfile.Describe(found)
	switch {
	case err == nil:
		s.told = ""
		w.opts.Events.Event(s.Ref, corev1.EventTypeWarning, CgroupRepaired,
			"The %s's cgroup was changed from outside and is repaired: %s", s.Level, text)
	case s.told != text:
		s.told = text
		w.opts.Events.Event(s.Ref, corev1.EventTypeWarning, FailedCgroupRepair,
			"The %s's cgroup was changed from outside and could not be repaired: %s: %v", s.Level, text, err)
	}
	return again
}
