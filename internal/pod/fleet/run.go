package fleet

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/worker"
)

// Run takes each pod through admission and manages the workers until ctx ends. Then all workers detach from their pods,
// which keep running, and Run returns.
func (f *Fleet) Run(ctx context.Context, admission Admission) error {
	f.asks = admission
	defer f.wg.Wait()
	for synced := false; !synced; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.ping: // the loop is healthy while it waits for the runtime
		case <-f.opts.ObservedSynced:
			synced = true
		}
	}
	desired, observed := f.opts.Desired.Watch(), f.opts.Observed.Watch()
	defer desired.Stop()
	defer observed.Stop()
	again := time.NewTimer(0)
	defer again.Stop()
	desiredSynced, synced := f.opts.DesiredSynced, false
	settle := sync.OnceFunc(func() { close(f.settled) })
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-desired.C():
			f.desire(ctx, desired.Changes())
		case <-observed.C():
			for _, c := range observed.Changes() {
				f.Wake(c.Key)
				if synced && !c.Deleted {
					f.adopt(ctx, c.Value)
				}
			}
		case <-desiredSynced:
			desiredSynced, synced = nil, true
			f.desire(ctx, desired.Changes()) // first, so that sweep takes no desired pod for an orphan
			f.sweep(ctx)
		case <-f.kick:
		case <-f.ping:
			continue
		case <-again.C:
		}
		f.bury()
		f.resize()
		if next := f.admit(ctx); !next.IsZero() {
			again.Reset(max(0, next.Sub(f.opts.Now())))
		}
		if synced {
			settle()
		}
	}
}

// desire applies changes of the desired pods to the members.
func (f *Fleet) desire(ctx context.Context, changes []store.Change[types.UID, *pod.Pod]) {
	for _, c := range changes {
		f.mu.Lock()
		m := f.members[c.Key]
		var w *worker.Worker
		switch {
		case m == nil && c.Deleted:
			f.mu.Unlock()
			continue
		case m == nil:
			m = &member{pod: c.Value, desired: c.Value}
			f.members[c.Key] = m
		case c.Deleted && (m.worker == nil || m.gone):
			m.endAhead()
			delete(f.members, c.Key)
		case c.Deleted:
			w = m.worker
		default:
			m.want(c.Value)
		}
		f.mu.Unlock()
		switch {
		case w != nil:
			w.Stop(pod.Stop{Reason: pod.StopDeleted, Message: "the pod is no longer wanted", Remove: true,
				At: f.opts.Now()})
		case !c.Deleted:
			f.end(ctx, m)
		}
		f.opts.Changed(c.Key)
	}
}

// want sets another desired version of the pod. If the change has no effect on this node (pod.Differs), the new version
// only replaces the old one. The caller holds the fleet's lock.
func (m *member) want(p *pod.Pod) {
	was := m.desired
	m.desired = p
	switch same := was != nil && was.Source == p.Source && !pod.Differs(was.Pod, p.Pod); {
	case same && m.pod == was:
		m.pod = p
	case same:
	case m.worker != nil:
		m.due = true
	default:
		m.endAhead()
		m.pod = p
		if p.Source != pod.SourceAPI { // a rejected pod of the API server has failed for good
			m.verdict = Verdict{} // others go through admission again when their manifest changes
		}
	}
}

// end ends a pod that the API server deletes or reports as ended. If the pod has no worker, it gets one, since an
// earlier agent may have left something of it.
func (f *Fleet) end(ctx context.Context, m *member) {
	f.mu.Lock()
	stops, w, gone := ends(m.desired, m.verdict, f.opts.Now()), m.worker, m.gone
	if w == nil && len(stops) > 0 {
		m.endAhead()
		m.verdict.Ended = true
	}
	f.mu.Unlock()
	switch {
	case gone || len(stops) == 0:
	case w == nil:
		f.work(ctx, m, stops...)
	default:
		for _, s := range stops {
			w.Stop(s)
		}
	}
}

// resize gives workers the new versions of their pods, with the resources that the node can allocate. Each call tries
// again for the versions that wait for resources.
func (f *Fleet) resize() {
	f.mu.Lock()
	var list []*member
	for _, m := range f.members {
		if m.worker != nil && m.due && m.worker.State().Stop == nil { // an ending pod keeps its resources
			list = append(list, m)
		}
	}
	f.mu.Unlock()
	slices.SortFunc(list, func(a, b *member) int { return compare(a.desired, true, b.desired, true) })
	for _, m := range list {
		p := f.asks.Allocate(m.desired, append(f.Holders(), f.Reserved()...))
		f.mu.Lock()
		m.due = p != m.desired
		news := !m.due || pod.Differs(m.pod.Pod, p.Pod)
		if news {
			m.pod = p
		}
		w := m.worker
		f.mu.Unlock()
		if news {
			w.Update(p)
			f.Reconsider() // another pod may wait for the resources that it gave back
		}
		f.opts.Changed(p.UID)
	}
}

// admit runs admission for each waiting pod, in the order of compare, and returns when to call it again. Resources that
// are reserved for a pod are not available to the pods after it.
func (f *Fleet) admit(ctx context.Context) time.Time {
	var next time.Time
	var kept []Other
	for _, m := range f.waiting() {
		others := append(f.Holders(), kept...)
		p := f.asks.Allocate(m.desired, others)
		v := f.asks.Admit(p, others)
		f.mu.Lock()
		m.pod, m.due = p, p != m.desired
		same := m.verdict == v
		m.verdict = v
		f.mu.Unlock()
		switch {
		case v.Admit:
			f.work(ctx, m)
		case v.Reject:
			if o, _ := f.opts.Observed.Get(p.UID); o.Running() { // an earlier agent started it
				f.work(ctx, m, rejection(v, f.opts.Now()))
			}
		default:
			f.begin(ctx, m, p)
			if v.Reserve {
				kept = append(kept, Other{Pod: p})
			}
			if v.Again.After(f.opts.Now()) && (next.IsZero() || v.Again.Before(next)) {
				next = v.Again
			}
		}
		if !same {
			f.opts.Changed(m.pod.UID)
		}
	}
	return next
}

// begin starts Ahead for a waiting pod, unless it was started before.
func (f *Fleet) begin(ctx context.Context, m *member, p *pod.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.opts.Ahead == nil || m.ahead != nil {
		return
	}
	ctx, m.ahead = context.WithCancel(ctx)
	f.wg.Go(func() { f.opts.Ahead(ctx, p) })
}

// endAhead cancels Ahead if it was started. The caller holds the fleet's lock.
func (m *member) endAhead() {
	if m.ahead != nil {
		m.ahead()
		m.ahead = nil
	}
}

// waiting lists the pods that wait for admission, in the order of compare. Pods that run already come first, so that a
// restart of the agent gives their place to no other pod.
func (f *Fleet) waiting() []*member {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []*member
	for _, m := range f.members {
		if m.worker == nil && !m.verdict.Reject {
			list = append(list, m)
		}
	}
	slices.SortFunc(list, func(a, b *member) int {
		_, runsA := f.opts.Observed.Get(a.pod.UID)
		_, runsB := f.opts.Observed.Get(b.pod.UID)
		return compare(a.pod, runsA, b.pod, runsB)
	})
	return list
}

// Holders lists the pods that hold resources of the node, ordered by namespace and name. A pod that has ended is listed
// only while it is being removed: it still holds its name.
func (f *Fleet) Holders() []Other {
	type holder struct {
		worker *worker.Worker
		ended  bool
	}
	var all []holder
	f.mu.Lock()
	for _, m := range f.members {
		if m.worker != nil && !m.gone {
			all = append(all, holder{m.worker, m.verdict.Ended})
		}
	}
	f.mu.Unlock()
	others := make([]Other, 0, len(all))
	for _, h := range all {
		s := h.worker.State()
		if ended := h.ended || s.Stage == worker.Terminated; !ended || s.Stop != nil && s.Stop.Remove {
			others = append(others, Other{Pod: s.Pod, Terminating: s.Stop != nil, EndsBy: endsBy(s.Pod, s.Stop)})
		}
	}
	slices.SortFunc(others, func(a, b Other) int {
		return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name),
			cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	return others
}

// Reserved lists the waiting pods for which the node reserves the resources that ending pods still hold.
func (f *Fleet) Reserved() (kept []Other) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.members {
		if m.worker == nil && m.verdict.Reserve {
			kept = append(kept, Other{Pod: m.pod})
		}
	}
	return kept
}

// work gives m a worker. With stops in ends, the worker ends the pod at once.
func (f *Fleet) work(ctx context.Context, m *member, ends ...pod.Stop) {
	w := worker.New(f.opts.Worker, m.pod)
	if len(ends) == 0 {
		f.metrics.begins(m.pod.Pod, f.opts.Now().Sub(m.pod.Seen))
	}
	for _, s := range ends {
		w.Stop(s)
	}
	f.mu.Lock()
	m.worker = w
	f.mu.Unlock()
	uid := m.pod.UID
	f.wg.Go(func() {
		if w.Run(ctx) != nil {
			return // ctx has ended and the worker has detached
		}
		f.mu.Lock()
		f.ended = append(f.ended, uid)
		f.mu.Unlock()
		f.Reconsider()
	})
}

// bury drops the pods whose workers have ended. A pod that a source wants again meanwhile starts afresh, after its
// status was dropped. A pod that the API server is deleting stays a member until the API server has dropped it.
func (f *Fleet) bury() {
	f.mu.Lock()
	ended := f.ended
	f.ended = nil
	for _, uid := range ended {
		m := f.members[uid]
		m.endAhead()
		if p, wanted := f.opts.Desired.Get(uid); wanted && p.DeletionTimestamp != nil {
			m.desired, m.gone, m.orphan = p, true, false
			continue
		}
		delete(f.members, uid)
	}
	f.mu.Unlock()
	for _, uid := range ended {
		f.opts.Changed(uid)
		f.mu.Lock()
		p, wanted := f.opts.Desired.Get(uid)
		again := wanted && f.members[uid] == nil
		if again {
			f.members[uid] = &member{pod: p, desired: p}
		}
		f.mu.Unlock()
		if again {
			f.opts.Changed(uid)
		}
	}
}

// sweep looks in the runtime, on disk and in cgroups for pods that no source wants, and ends them.
func (f *Fleet) sweep(ctx context.Context) {
	for _, o := range f.opts.Observed.Snapshot().All() {
		f.adopt(ctx, o)
	}
	left, err := f.opts.Leftovers()
	if err != nil {
		f.opts.Log.Warn("look for leftovers of earlier pods", "err", err)
	}
	for _, uid := range left {
		f.adopt(ctx, &pod.Observed{UID: uid, Name: string(uid)})
	}
}

// adopt ends a pod that is no member, with the grace period that its sandbox records.
func (f *Fleet) adopt(ctx context.Context, o *pod.Observed) {
	f.mu.Lock()
	if f.members[o.UID] != nil {
		f.mu.Unlock()
		return
	}
	m := &member{pod: pod.Orphan(o), orphan: true, verdict: Verdict{Admit: true}}
	f.members[o.UID] = m
	f.mu.Unlock()
	f.opts.Log.Info("ending a pod that no source asks for", "pod", pod.FullName(m.pod.Pod), "uid", o.UID)
	f.work(ctx, m, pod.Stop{
		Reason: pod.StopDeleted, Message: "no source asks for the pod", Remove: true, At: f.opts.Now(),
	})
	f.opts.Changed(o.UID)
}
