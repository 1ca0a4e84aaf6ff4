package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/pod"
)

// callTimeout limits one call of the API server.
const callTimeout = 10 * time.Second

// try is the state of the calls for one name.
type try struct {
	busy     bool // a call is under way
	changed  bool // the pods changed during the call
	paused   bool // wait until next, even if the pods change
	failures int
	next     time.Time
	logged   string // the last failure that was logged
}

// result is the outcome of an action.
type result struct {
	name types.NamespacedName
	what act
	err  error
}

// errUnregistered means that the node has no object that could own a pod.
var errUnregistered = errors.New("the node is not registered yet")

// Run keeps the mirror pods until ctx ends. It retries what fails, and returns only when ctx ends.
func (m *Mirrors) Run(ctx context.Context) error {
	select {
	case <-m.opts.Synced: // before that, the manifest of a copy may just not have been read
	case <-ctx.Done():
		return ctx.Err()
	}
	desired, mirrors := m.opts.Desired.Watch(), m.opts.Mirrors.Watch()
	defer desired.Stop()
	defer mirrors.Stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	alarm := wake.NewAlarm()
	defer alarm.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-desired.C():
			for _, c := range desired.Changes() {
				if mirrorable(c.Value) {
					m.setStatic(c.Value, c.Deleted)
				}
			}
		case <-mirrors.C():
			for _, c := range mirrors.Changes() {
				m.reconsider(c.Key)
			}
		case r := <-m.results:
			m.ended(r)
		case <-alarm.C():
		}
		next := m.begin(ctx, &wg)
		alarm.Set(next, m.opts.Now())
	}
}

// setStatic stores a static pod that was added, changed or removed.
func (m *Mirrors) setStatic(p *pod.Pod, gone bool) {
	name := p.Key()
	switch was := m.statics[name]; {
	case !gone:
		m.statics[name] = p
	case was != nil && was.UID == p.UID:
		delete(m.statics, name)
	}
	if gone {
		delete(m.shown, p.UID)
	}
	m.reconsider(name)
}

// reconsider makes a name due, at once unless it is paused after the creation of its mirror pod.
func (m *Mirrors) reconsider(name types.NamespacedName) {
	t := m.tries[name]
	if t == nil {
		t = &try{}
		m.tries[name] = t
	}
	if t.changed = t.busy; !t.busy && !t.paused {
		t.failures, t.next = 0, time.Time{}
	}
	m.notify(name)
}

// notify marks a static pod as stale if it has another mirror pod than before, or if the status of the mirror pod has
// changed: another writer may have changed it.
func (m *Mirrors) notify(name types.NamespacedName) {
	static := m.statics[name]
	if static == nil {
		return
	}
	was := m.shown[static.UID]
	now, _ := m.Mirror(static.UID)
	if was == now || was != nil && now != nil && was.UID == now.UID &&
		equality.Semantic.DeepEqual(was.Status, now.Status) {
		return
	}
	m.shown[static.UID] = now
	m.opts.Stale.Mark(static.UID)
}

// begin starts the actions that are due. It returns when the next one is due, or zero if only a change makes one due.
func (m *Mirrors) begin(ctx context.Context, wg *sync.WaitGroup) (next time.Time) {
	now := m.opts.Now()
	for name, t := range m.tries {
		if t.busy {
			continue
		}
		static := m.statics[name]
		mirror, _ := m.opts.Mirrors.Get(name)
		what := decide(static, mirror)
		switch {
		case t.next.After(now):
			if next.IsZero() || t.next.Before(next) {
				next = t.next
			}
		case what == nothing:
			delete(m.tries, name)
		default:
			t.busy, t.paused = true, false
			wg.Go(func() {
				select {
				case m.results <- result{name, what, m.do(ctx, what, static, mirror)}:
				case <-ctx.Done():
				}
			})
		}
	}
	return next
}

// do performs an action at the API server.
func (m *Mirrors) do(ctx context.Context, what act, static *pod.Pod, mirror *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if what == create {
		node, ok := m.opts.Nodes.Get(m.opts.NodeName)
		if !ok {
			return errUnregistered
		}
		copied := copyOf(static, m.opts.NodeName, node.UID)
		if _, err := m.opts.Client.CoreV1().Pods(static.Namespace).Create(ctx, copied,
			metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create mirror pod %s: %w", pod.FullName(static.Pod), err)
		}
		return nil
	}
	err := m.opts.Client.CoreV1().Pods(mirror.Namespace).Delete(ctx, mirror.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(mirror.UID)),
	})
	if err != nil && !apierrors.IsNotFound(err) &&
		!apierrors.IsConflict(err) { // the mirror pod has already been replaced or deleted, which the watch reports
		return fmt.Errorf("delete mirror pod %s: %w", pod.FullName(mirror), err)
	}
	return nil
}

// ended schedules a name after an action.
func (m *Mirrors) ended(r result) {
	t, now := m.tries[r.name], m.opts.Now()
	changed := t.changed
	t.busy, t.changed = false, false
	switch {
	case r.err == nil && r.what == create:
		t.failures, t.logged, t.next, t.paused = 0, "", now.Add(pause), true
	case r.err == nil && changed:
		t.failures, t.logged, t.next = 0, "", time.Time{}
	case r.err == nil:
		t.failures, t.logged, t.next = 0, "", now.Add(pause) // the watch usually reports the deletion earlier
	case errors.Is(r.err, errUnregistered):
		t.next = now.Add(unregistered)
	case changed:
		t.failures, t.next = 0, time.Time{}
	default:
		t.failures++
		after := delay(t.failures, r.err)
		t.next = now.Add(after)
		if text := r.err.Error(); t.logged != text {
			t.logged = text
			m.opts.Log.Warn("cannot update a mirror pod, retrying", "pod", r.name, "err", r.err, "after", after)
		}
	}
}
