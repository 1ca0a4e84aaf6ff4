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
	"github.com/berth-run/berth/internal/base/retry"
)

const (
	firstRetry, lastRetry = time.Second, 30 * time.Second
	callWithin            = 10 * time.Second
	// The time for sending statuses is the rest of the group's time, within these limits. The machine must not stay up
	// for an API server that is unreachable.
	flushAtLeast, flushAtMost = time.Second, 5 * time.Second
	// settleWithin is how long an agent that starts during a shutdown looks for running pods.
	settleWithin = 5 * time.Second
)

// Run holds the inhibitor and ends the pods when the machine shuts down, until ctx ends. On a machine without logind it
// keeps trying to connect; pods run all the same.
func (m *Manager) Run(ctx context.Context) error {
	if len(m.o.Groups) == 0 {
		return nil
	}
	m.logLastShutdown()
	defer m.setInhibitor(nil)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		launch := func(f func()) { group.Go(func() error { f(); return nil }) }
		delays := retry.Doubling(firstRetry, lastRetry)
		for ctx.Err() == nil {
			began := time.Now()
			err := m.watch(ctx, launch)
			if time.Since(began) > lastRetry {
				delays = retry.Doubling(firstRetry, lastRetry)
			}
			delay := delays.Step()
			if ctx.Err() == nil {
				m.o.Log.Warn("cannot watch logind for shutdowns, retrying", "err", err, "delay", delay)
			}
			_ = retry.Sleep(ctx, delay) // the loop checks ctx
		}
		return nil
	})
	return group.Wait()
}

// logLastShutdown logs the journal of the last shutdown and sets the metrics from it.
func (m *Manager) logLastShutdown() {
	j, err := Load(m.o.Path)
	if err != nil {
		m.o.Log.Warn("cannot read the journal of the last shutdown", "err", err)
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
	m.o.Log.Info("found the journal of the last shutdown", "began", j.Began, "finished", !j.Ended.IsZero(), "cancelled",
		j.Cancelled,
		"pods", len(j.Pods), "not ended in time", late)
}

// watch follows logind over one connection. It returns when the connection is closed.
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
		m.o.Log.Warn("logind may not wait for all pods in a shutdown", "err", err)
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

// follow reacts to a signal of logind: it ends the pods, or takes the inhibitor for the next shutdown.
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
		m.o.Log.Info("shutdown of this machine cancelled")
		m.o.Events.Event(m.o.Ref, corev1.EventTypeNormal, "Shutdown", "Shutdown manager detected shutdown cancellation")
		m.o.Condition.SetProblem("")
	}
	ctx, done := context.WithTimeout(ctx, callWithin)
	defer done()
	lock, err := l.inhibit(ctx)
	if err != nil {
		return err
	}
	m.setInhibitor(lock)
	return nil
}

// end ends the pods group by group, and then lets the machine shut down.
func (m *Manager) end(ctx context.Context) {
	m.ending.Lock() // a cancelled shutdown may still be writing
	defer m.ending.Unlock()
	m.o.Log.Info("this machine is shutting down, ending its pods")
	m.o.Condition.SetProblem(problem)
	m.o.Events.Event(m.o.Ref, corev1.EventTypeNormal, "Shutdown", "Shutdown manager detected shutdown event")
	journal := Journal{Began: time.Now()}
	m.write(journal)
	m.waitSettled(ctx)
	for i := range m.o.Groups {
		batch, found := Next(m.o.Groups, i, m.remaining(journal.Pods))
		if !found || ctx.Err() != nil {
			continue
		}
		journal.Pods = append(journal.Pods, m.endBatch(ctx, batch)...)
		m.write(journal)
	}
	journal.Ended, journal.Cancelled = time.Now(), ctx.Err() != nil
	m.write(journal)
	if m.release(ctx) {
		m.o.Log.Info("pods stopped, letting this machine shut down", "pods", len(journal.Pods), "took",
			journal.Ended.Sub(journal.Began))
	}
}

// waitSettled waits until the pods that an earlier agent left are known.
func (m *Manager) waitSettled(ctx context.Context) {
	if m.o.Settled == nil {
		return
	}
	select {
	case <-m.o.Settled:
	case <-ctx.Done():
	case <-time.After(settleWithin):
		m.o.Log.Warn("not all running pods are known yet, ending the known ones")
	}
}

// remaining returns the active pods that were not stopped yet.
func (m *Manager) remaining(stopped []Stopped) []*corev1.Pod {
	return slices.DeleteFunc(m.o.Pods.Active(), func(p *corev1.Pod) bool {
		return slices.ContainsFunc(stopped, func(s Stopped) bool { return s.UID == p.UID })
	})
}

// endBatch stops the pods of a group at once and waits until they and their volumes are gone or their time is over.
// Then it sends their last statuses, because the next group may hold the pods that connect to the API server.
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
			m.o.Log.Warn("pod has not ended within the time of its group", "namespace", s.Namespace, "pod", s.Name,
				"group", b.Priority, "time", b.Grace)
		}
	}
	flush, sent := context.WithTimeout(ctx, max(flushAtLeast, min(flushAtMost, b.Grace-time.Since(began))))
	defer sent()
	if err := m.o.Statuses.Flush(flush); err != nil && ctx.Err() == nil {
		m.o.Log.Warn("cannot send all last statuses of pods", "err", err)
	}
	return stopped
}

func (m *Manager) write(j Journal) {
	m.metrics.show(j)
	if err := checkpoint.Save(m.o.Path, format(), j); err != nil {
		m.o.Log.Warn("cannot save the journal of the shutdown", "err", err)
	}
}
