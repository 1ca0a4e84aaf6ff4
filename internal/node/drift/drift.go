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
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/base/inotify"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/record/event"
)

// Reasons of the events.
const (
	// CgroupRepaired: a value was changed from outside and is restored.
	CgroupRepaired = "CgroupRepaired"
	// FailedCgroupRepair: such a value could not be restored.
	FailedCgroupRepair = "FailedCgroupRepair"
)

// Options configure a Watch. Metrics and Audit are optional.
type Options struct {
	// Audit is the time in which each subject is checked at least once. Default 5 min.
	Audit   time.Duration
	Metrics prometheus.Registerer
	Events  event.Sink
	Log     *slog.Logger
}

// Watch repairs the cgroups of its subjects. Its methods may be called from any goroutine, also before Run.
type Watch struct {
	opts    Options
	repairs *prometheus.CounterVec
	failed  *prometheus.CounterVec
	wake    wake.Signal
	machine func() string // readMachine, except in tests

	mu       sync.Mutex
	kernel   *inotify.Instance // nil unless Run is active
	subjects map[string]*subject
	keys     map[inotify.Watch][]string // subject keys by inotify watch descriptor
	dirs     map[string]string          // subject key by directory
	dirty    map[string]time.Time       // when a subject is due for a check, by key
}

// subject is the state of one registered cgroup. suspect and lastFailure belong to the running check; there is at most
// one.
type subject struct {
	cgroupfile.Subject
	watches     []inotify.Watch
	unwatched   bool // inotify does not cover it: only the audit checks it
	held        int  // number of legitimate changes in progress
	checking    bool
	checked     time.Time // when the last check began; zero: there was none
	suspect     suspicion
	lastFailure string // the last reported failure
}

// New returns a Watch without subjects.
func New(o Options) (*Watch, error) {
	w := &Watch{
		opts: o, wake: wake.New(), subjects: map[string]*subject{}, keys: map[inotify.Watch][]string{},
		dirs: map[string]string{}, dirty: map[string]time.Time{}, machine: readMachine,
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

// Watch registers a cgroup under a key and replaces the previous subject of that key. The subject is checked at once,
// because it may have changed before inotify watches it.
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

// Unwatch removes the subject of a key.
func (w *Watch) Unwatch(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(key)
}

// unwatch removes a subject unless the key has a new one.
func (w *Watch) unwatch(key string, s *subject) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.subjects[key] == s {
		w.drop(key)
	}
}

// Hold suspends repairs of a subject during a legitimate change, until release is called.
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

// Watched reports whether a key has a subject.
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
			w.kernel.Remove(wd)
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

// changes are the events to watch a cgroup directory for. Only the watch of the parent directory reports that a cgroup
// was removed: the file system keeps the inode, so that IN_DELETE_SELF never comes.
const changes = unix.IN_MODIFY | unix.IN_DELETE | unix.IN_ONLYDIR

// register adds inotify watches for the directories of a subject, and marks it, because it may have changed before.
func (w *Watch) register(key string) {
	s := w.subjects[key]
	for _, dir := range s.Group.Watched() {
		wd, err := w.kernel.Add(dir, changes)
		if err != nil {
			if !s.unwatched && s.Group.Exists() {
				w.opts.Log.Warn("cannot watch a cgroup, only the audit will notice changes", "directory", dir, "err",
					err)
			}
			s.unwatched = true
			continue
		}
		s.watches = append(s.watches, wd)
		w.keys[wd] = append(w.keys[wd], key)
	}
	w.mark(key)
}

// mark makes a subject due for a check. It does nothing for a subject that was dropped, such as during a Hold.
func (w *Watch) mark(key string) {
	if w.subjects[key] == nil {
		return
	}
	if _, ok := w.dirty[key]; !ok {
		w.dirty[key] = time.Now().Add(gather)
	}
	w.wake.Wake()
}

// handle processes inotify events.
func (w *Watch) handle(all []inotify.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range all {
		if e.Overflowed() {
			for key := range w.subjects {
				w.mark(key)
			}
		}
		for _, key := range w.keys[e.Watch] {
			switch {
			case e.Mask&unix.IN_DELETE != 0:
				w.handleRemoval(key, e.Name)
			case concerns(e):
				w.mark(key)
			}
		}
	}
}

// handleRemoval marks the subject whose directory, in a directory of parent, was removed.
func (w *Watch) handleRemoval(parent, name string) {
	for _, dir := range w.subjects[parent].Group.Watched() {
		if key, ok := w.dirs[filepath.Join(dir, name)]; ok {
			w.mark(key)
		}
	}
}

// startChecks returns the subjects that are due now and the subjects of a scope, and marks them as being checked. It
// leaves out subjects that are held or being checked.
func (w *Watch) startChecks(now time.Time, more scope) map[string]*subject {
	w.mu.Lock()
	defer w.mu.Unlock()
	started := map[string]*subject{}
	for key, s := range w.subjects {
		due, dirty := w.dirty[key]
		wanted := more == everything || more == uncovered && !w.covered(s) || dirty && !due.After(now)
		if wanted && s.held == 0 && !s.checking {
			started[key], s.checking, s.checked = s, true, now
			delete(w.dirty, key)
		}
	}
	return started
}

// covered reports whether inotify reports each write to the files of a subject and the removal of its directories. Only
// the watch of another subject, at their parents, reports a removal.
func (w *Watch) covered(s *subject) bool {
	for _, dir := range s.Group.Watched() {
		if _, ok := w.dirs[filepath.Dir(dir)]; !ok {
			return false
		}
	}
	return !s.unwatched
}

// due returns the time of the next check. ok is false if there is none.
func (w *Watch) due() (next time.Time, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, at := range w.dirty {
		if s := w.subjects[key]; s.held == 0 && !s.checking && (!ok || at.Before(next)) {
			next, ok = at, true
		}
	}
	return next, ok
}

// finish records the end of a check.
func (w *Watch) finish(e outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.subject.checking = false
	if _, dirty := w.dirty[e.key]; e.again && !dirty && w.subjects[e.key] == e.subject {
		w.dirty[e.key] = time.Now().Add(settle)
	}
}

func (w *Watch) isHeld(s *subject) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return s.held > 0
}

// check compares a subject with its wanted values and repairs it. It reports whether another check is needed soon.
func (w *Watch) check(ctx context.Context, key string, s *subject) (again bool) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
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
			w.opts.Log.Warn("cannot compare a cgroup with its wanted values", "level", s.Level, "pod", s.Ref.Name,
				"err", err)
		}
		return false
	}
	if len(found) == 0 {
		s.lastFailure = ""
	}
	var confirmed bool
	if s.suspect, confirmed = s.suspect.next(found); !confirmed {
		return len(found) > 0
	}
	if w.isHeld(s) {
		return false // release marks it for another check
	}
	return w.repair(ctx, s, found)
}

// repair repairs the changes found. It reports whether other values changed meanwhile.
func (w *Watch) repair(ctx context.Context, s *subject, found []cgroupfile.Change) (again bool) {
	err := s.Repair(ctx, found)
	if err == nil {
		var left []cgroupfile.Change
		if left, err = s.Differs(ctx); err == nil {
			same := remaining(found, left)
			again = len(left) > len(same)
			if len(same) > 0 {
				err = fmt.Errorf("the repair had no effect: %s", cgroupfile.Describe(same))
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
		s.lastFailure = ""
		w.opts.Events.Event(s.Ref, corev1.EventTypeWarning, CgroupRepaired,
			"The %s's cgroup was changed from outside and is repaired: %s", s.Level, text)
	case s.lastFailure != text:
		s.lastFailure = text
		w.opts.Events.Event(s.Ref, corev1.EventTypeWarning, FailedCgroupRepair,
			"The %s's cgroup was changed from outside and could not be repaired: %s: %v", s.Level, text, err)
	}
	return again
}
