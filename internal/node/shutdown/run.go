package shutdown

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/checkpoint"
)

const (
	firstRetry, lastRetry = time.Second, 30 * time.Second
	callWithin            = 10 * time.Second
	// Sending statuses gets what is left of the group's time, within these: the
	// machine does not stay up for an API server that is away.
	flushAtLeast, flushAtMost = time.Second, 5 * time.Second
	// settleWithin is how long an agent that comes up meanwhile looks for what runs.
	settleWithin = 5 * time.Second
)

// Run holds the inhibitor and ends the pods when the machine goes down, until ctx
// ends. A machine without logind runs pods all the same: it is tried again.
func (m *Manager) Run(ctx context.Context) error {
	if len(m.o.Groups) == 0 {
		return nil
	}
	m.recall()
	defer m.hold(nil)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		launch := func(f func()) { group.Go(func() error { f(); return nil }) }
		for retry := firstRetry; ctx.Err() == nil; retry = min(2*retry, lastRetry) {
			began := time.Now()
			err := m.watch(ctx, launch)
			if time.Since(began) > lastRetry {
				retry = firstRetry
			}
			if ctx.Err() == nil {
				m.o.Log.Warn("A shutdown of this machine would not be noticed", "err", err, "again in", retry)
			}
			select {
			case <-ctx.Done():
			case <-time.After(retry):
			}
		}
		return nil
	})
	return group.Wait()
}

// recall says what the last shutdown did.
func (m *Manager) recall() {
	j, err := Load(m.o.Path)
	if err != nil {
		m.o.Log.Warn("Cannot read the journal of the last shutdown", "err", err)
		return
	}
	if j.Began.IsZero() {
		return
	}
	m.metrics.show(j)
	late := 0
	for _, p := range j.Pods {
		if !p.Gone {
			late++
		}
	}
	m.o.Log.Info("The last shutdown of this node", "began", j.Began, "finished", !j.Ended.IsZero(), "cancelled",
		j.Cancelled,
		"pods", len(j.Pods), "not ended in time", late)
}

// watch follows logind on one connection. It returns when that has ended.
func (m *Manager) watch(ctx context.Context, launch func(func())) error {
	conn, err := m.o.Bus(ctx)
	if err != nil {
		return fmt.Errorf("connect to D-Bus: %w", err)
	}
	defer conn.Close() //nolint:errcheck // nothing to lose
	l := logind{conn}
	setup, done := context.WithTimeout(ctx, callWithin)
	defer done()
	signals, err := l.subscribe(setup)
	if err != nil {
		return err
	}
	if err := l.allow(setup, Total(m.o.Groups), m.o.DropInDir); err != nil {
		if short := (*shortError)(nil); !errors.As(err, &short) {
			return err
		}
		m.o.Log.Warn("Pods may not get their time when the machine goes down", "err", err)
	}
	now, err := l.isPreparing()
	if err != nil {
		return err
	}
	if err := m.follow(ctx, l, now, launch); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case s, ok := <-signals:
			if !ok {
				return errDisconnected
			}
			if down, ok := preparing(s); ok {
				if err := m.follow(ctx, l, down, launch); err != nil {
					return err
				}
			}
		}
	}
}

// follow does what logind says: end the pods, or hold the inhibitor for the next
// time.
func (m *Manager) follow(ctx context.Context, l logind, down bool, launch func(func())) error {
	m.mu.Lock()
	was := m.down
	m.down = down
	if down && !was {
		var ending context.Context
		ending, m.cancel = context.WithCancel(ctx)
		launch(func() { m.end(ending) })
	}
	if !down && was {
		m.cancel()
	}
	m.mu.Unlock()
	if down {
		return nil
	}
	if was {
		m.o.Log.Info("The shutdown of this machine was called off")
		m.o.Events.Event(m.o.Ref, corev1.EventTypeNormal, "Shutdown", "Shutdown manager detected shutdown cancellation")
		m.o.Tell("")
	}
	ctx, done := context.WithTimeout(ctx, callWithin)
	defer done()
	lock, err := l.inhibit(ctx)
	if err != nil {
		return err
	}
	m.hold(lock)
	return nil
}

// end ends the pods, group by group, and then lets the machine go down.
func (m *Manager) end(ctx context.Context) {
	m.ending.Lock() // a shutdown that was called off may still be writing
	defer m.ending.Unlock()
	m.o.Log.Info("This machine is going down: ending its pods")
	m.o.Tell(problem)
	m.o.Events.Event(m.o.Ref, corev1.EventTypeNormal, "Shutdown", "Shutdown manager detected shutdown event")
	journal := Journal{Began: time.Now()}
	m.write(journal)
	m.settle(ctx)
	for i := range m.o.Groups {
		batch, found := Next(m.o.Groups, i, m.left(journal.Pods))
		if !found || ctx.Err() != nil {
			continue
		}
		journal.Pods = append(journal.Pods, m.endBatch(ctx, batch)...)
		m.write(journal)
	}
	journal.Ended, journal.Cancelled = time.Now(), ctx.Err() != nil
	m.write(journal)
	if m.release(ctx) {
		m.o.Log.Info("The pods of this node have ended: the machine may go down", "pods", len(journal.Pods), "took",
			journal.Ended.Sub(journal.Began))
	}
}

// settle waits for the pods that an earlier agent left.
func (m *Manager) settle(ctx context.Context) {
	if m.o.Settled == nil {
		return
	}
	select {
	case <-m.o.Settled:
	case <-ctx.Done():
	case <-time.After(settleWithin):
		m.o.Log.Warn("Not all pods are known yet: those that are end now")
	}
}

// left are the pods that were not stopped yet.
func (m *Manager) left(stopped []Stopped) []*corev1.Pod {
	return slices.DeleteFunc(m.o.Pods.Active(), func(p *corev1.Pod) bool {
		return slices.ContainsFunc(stopped, func(s Stopped) bool { return s.UID == p.UID })
	})
}

// endBatch ends the pods of a group at once. When they are gone with their volumes
// or their time is over, their last statuses are sent, since the pods of the next
// group may be what the way to the API server needs.
func (m *Manager) endBatch(ctx context.Context, b Batch) []Stopped {
	began := time.Now()
	over, done := context.WithDeadline(ctx, began.Add(b.Grace))
	defer done()
	stopped := make([]Stopped, len(b.Pods))
	var wait sync.WaitGroup
	for i, e := range b.Pods {
		stopped[i] = Stopped{UID: e.Pod.UID, Namespace: e.Pod.Namespace, Name: e.Pod.Name, Grace: e.Grace, At: began}
		m.stop(e, began)
		wait.Go(func() { stopped[i].Gone = m.o.Pods.Ended(over, e.Pod.UID) == nil })
	}
	wait.Wait()
	for _, s := range stopped {
		if !s.Gone && ctx.Err() == nil {
			m.o.Log.Warn("A pod has not ended in the time of its group", "namespace", s.Namespace, "pod", s.Name,
				"group", b.Priority, "time", b.Grace)
		}
	}
	flush, sent := context.WithTimeout(ctx, max(flushAtLeast, min(flushAtMost, b.Grace-time.Since(began))))
	defer sent()
	if err := m.o.Statuses.Flush(flush); err != nil && ctx.Err() == nil {
		m.o.Log.Warn("The last statuses of pods may not have been sent", "err", err)
	}
	return stopped
}

func (m *Manager) write(j Journal) {
	m.metrics.show(j)
	if err := checkpoint.Save(m.o.Path, format(), j); err != nil {
		m.o.Log.Warn("Cannot keep what the shutdown did", "err", err)
	}
}
