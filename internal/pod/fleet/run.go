package fleet

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/guard"
	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/worker"
)

// keeper is a running fleet: it alone changes the members.
type keeper struct {
	Parts
	fleet *Fleet
	wg    guard.Group // of workers, and of pods that are prepared

	mu    sync.Mutex
	ended []types.UID // pods whose workers have ended
}

// Run takes each pod through admission and manages the workers until ctx ends. Then all workers detach from their pods,
// which keep running, and Run returns.
func (f *Fleet) Run(ctx context.Context, p Parts) error {
	k := &keeper{Parts: p, fleet: f}
	k.Worker.Owner = k
	defer k.wg.Wait()
	return k.run(ctx)
}

func (k *keeper) run(ctx context.Context) error {
	f := k.fleet
	for synced := false; !synced; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.ping: // the loop is healthy while it waits for the runtime
		case <-k.Observed.Synced():
			synced = true
		}
	}
	desired, observed := k.Desired.Watch(), k.Observed.Watch()
	defer desired.Stop()
	defer observed.Stop()
	again := time.NewTimer(0)
	defer again.Stop()
	desiredSynced, synced := k.DesiredSynced, false
	settle := sync.OnceFunc(func() { close(f.settled) })
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-desired.C():
			k.desire(ctx, desired.Changes())
		case <-observed.C():
			for _, c := range observed.Changes() {
				k.fleet.Wake(c.Key)
				if synced && !c.Deleted {
					k.adopt(ctx, c.Value)
				}
			}
		case <-desiredSynced:
			desiredSynced, synced = nil, true
			k.desire(ctx, desired.Changes()) // first, so that sweep takes no desired pod for an orphan
			k.sweep(ctx)
		case <-k.Manifests.WantsChanged():
			if synced {
				k.desire(ctx, desired.Changes()) // first, as above
				k.sweep(ctx)
			}
		case <-f.retry.C():
		case <-f.ping:
			continue
		case <-again.C:
		}
		k.bury()
		k.resize()
		if next := k.admit(ctx); !next.IsZero() {
			again.Reset(max(0, next.Sub(k.fleet.now())))
		}
		if synced {
			settle()
		}
	}
}

// desire applies changes of the desired pods to the members.
func (k *keeper) desire(ctx context.Context, changes []store.Change[types.UID, *pod.Pod]) {
	for _, c := range changes {
		k.about(c.Key, c.Value, func() { k.desireOne(ctx, c) })
	}
}

// about calls f for one pod. If f panics, the report of this agent's end names the pod.
func (k *keeper) about(uid types.UID, p *pod.Pod, f func()) {
	if p == nil {
		p, _ = k.fleet.known(uid)
	}
	if p == nil {
		f()
		return
	}
	guard.About(pod.SubjectOf(p.Pod).String(), f)
}

func (k *keeper) desireOne(ctx context.Context, c store.Change[types.UID, *pod.Pod]) {
	k.fleet.mu.Lock()
	m := k.fleet.members[c.Key]
	var w *worker.Worker
	dropped := false
	switch {
	case m == nil && c.Deleted:
		k.fleet.mu.Unlock()
		return
	case m == nil:
		m = &member{pod: c.Value, desired: c.Value}
		k.fleet.add(m)
	case c.Deleted && (m.worker == nil || m.gone):
		m.endAhead()
		k.fleet.drop(m)
		dropped = !m.gone
	case c.Deleted:
		w = m.worker
	default:
		m.want(c.Value)
	}
	k.fleet.mu.Unlock()
	switch {
	case w != nil:
		w.Stop(pod.Stop{Reason: pod.StopDeleted, Message: "the pod is no longer wanted", Remove: true,
			At: k.fleet.now()})
	case dropped:
		// It has no worker while it is set aside, although an earlier agent may have started it.
		if o, _ := k.Observed.Get(c.Key); o.Running() {
			k.adopt(ctx, o)
		}
	case !c.Deleted && m.worker == nil && k.aside(c.Key):
		m.parked = true
	case !c.Deleted:
		k.end(ctx, m)
	}
	k.changed(c.Key)
}

// aside reports whether a pod is set aside now.
func (k *keeper) aside(uid types.UID) bool { return k.fleet.now().Before(k.Asides.Until(uid)) }

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
func (k *keeper) end(ctx context.Context, m *member) {
	k.fleet.mu.Lock()
	stops, w, gone := ends(m.desired, m.verdict, k.fleet.now()), m.worker, m.gone
	if w == nil && len(stops) > 0 {
		m.endAhead()
		m.verdict.Ended = true
	}
	k.fleet.mu.Unlock()
	switch {
	case gone || len(stops) == 0:
	case w == nil:
		k.work(ctx, m, stops...)
	default:
		for _, s := range stops {
			w.Stop(s)
		}
	}
}

// resize gives workers the new versions of their pods, with the resources that the node can allocate. Each call tries
// again for the versions that wait for resources.
func (k *keeper) resize() {
	k.fleet.mu.Lock()
	var list []*member
	for _, m := range k.fleet.sorted {
		if m.worker == nil || !m.due {
			continue
		}
		if _, _, stop := m.worker.Life(); stop == nil { // an ending pod keeps its resources
			list = append(list, m)
		}
	}
	k.fleet.mu.Unlock()
	slices.SortFunc(list, func(a, b *member) int { return compare(a.desired, true, b.desired, true) })
	for _, m := range list {
		k.about(m.pod.UID, m.pod, func() { k.resizeOne(m) })
	}
}

func (k *keeper) resizeOne(m *member) {
	guard.Point("fleet", m.pod.Namespace, m.pod.Name)
	p := k.Admission.Allocate(m.desired, append(k.fleet.Holders(), k.fleet.Reserved()...))
	k.fleet.mu.Lock()
	m.due = p != m.desired
	news := !m.due || pod.Differs(m.pod.Pod, p.Pod)
	if news {
		m.pod = p
	}
	w := m.worker
	k.fleet.mu.Unlock()
	if news {
		w.Update(p)
		k.fleet.Reconsider() // another pod may wait for the resources that it gave back
	}
	k.changed(p.UID)
}

// admit runs admission for each waiting pod, in the order of compare, and returns when to call it again. Resources that
// are reserved for a pod are not available to the pods after it.
func (k *keeper) admit(ctx context.Context) time.Time {
	var next time.Time
	var kept []Other
	for _, m := range k.waiting() {
		if until := k.Asides.Until(m.pod.UID); k.fleet.now().Before(until) {
			next = soonest(next, until)
			continue
		}
		k.about(m.pod.UID, m.pod, func() {
			if m.parked {
				m.parked = false
				k.end(ctx, m)
			}
			if m.worker == nil {
				next = soonest(next, k.admitOne(ctx, m, &kept))
			}
		})
	}
	return next
}

// admitOne runs admission for one pod, and returns when to call it again; zero for no such time. It adds the pod to
// kept if resources are reserved for it.
func (k *keeper) admitOne(ctx context.Context, m *member, kept *[]Other) (again time.Time) {
	guard.Point("fleet", m.pod.Namespace, m.pod.Name)
	strangers := k.strangers(ctx, m.pod) // first, because it makes members of some
	others := slices.Concat(k.fleet.Holders(), *kept, strangers)
	p := k.Admission.Allocate(m.desired, others)
	v := k.Admission.Admit(p, others)
	k.fleet.mu.Lock()
	m.pod, m.due = p, p != m.desired
	same := m.verdict == v
	m.verdict = v
	k.fleet.mu.Unlock()
	switch {
	case v.Admit && v.Stop != nil:
		k.work(ctx, m, *v.Stop)
	case v.Admit:
		k.work(ctx, m)
	case v.Reject:
		if o, _ := k.Observed.Get(p.UID); o.Running() { // an earlier agent started it
			k.work(ctx, m, rejection(v, k.fleet.now()))
		}
	default:
		k.begin(ctx, m, p)
		if v.Reserve {
			*kept = append(*kept, Other{Pod: p})
		}
		if v.Again.After(k.fleet.now()) {
			again = v.Again
		}
	}
	if !same {
		k.changed(m.pod.UID)
	}
	return again
}

// strangers lists the pods in the runtime that have the name of p and are no members. There are some while not all
// sources are read. p must not start beside them. A static pod among them is an earlier version of p if p is one too:
// it ends at once, and not only when all sources are read, because these may need p, as an API server in a static pod.
func (k *keeper) strangers(ctx context.Context, p *pod.Pod) (all []Other) {
	named := func(o *pod.Observed) bool { return o.Name == p.Name && o.Namespace == p.Namespace }
	for _, o := range k.Observed.Where(named) {
		if _, member := k.fleet.known(o.UID); member {
			continue
		}
		if pod.Static(p.Pod) && pod.StaticUID(o.UID) {
			k.adopt(ctx, o)
			continue
		}
		all = append(all, Other{Pod: pod.Orphan(o)})
	}
	return all
}

// soonest returns the earlier of two times. Zero means never.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// begin starts to prepare a waiting pod, unless that was started before.
func (k *keeper) begin(ctx context.Context, m *member, p *pod.Pod) {
	k.fleet.mu.Lock()
	defer k.fleet.mu.Unlock()
	if m.ahead != nil {
		return
	}
	ctx, m.ahead = context.WithCancel(ctx)
	k.wg.Go(func() {
		err := guard.Call(func() error { k.Prefetcher.Prefetch(ctx, p); return nil })
		if e := guard.Of(err); e != nil {
			k.Panicked(p, "prefetch", e)
		}
	})
}

// endAhead stops preparing a pod if that was started. The caller holds the fleet's lock.
func (m *member) endAhead() {
	if m.ahead != nil {
		m.ahead()
		m.ahead = nil
	}
}

// waiting lists the pods that wait for admission, in the order of compare. Pods that run already come first, so that a
// restart of the agent gives their place to no other pod.
func (k *keeper) waiting() []*member {
	k.fleet.mu.Lock()
	defer k.fleet.mu.Unlock()
	var list []*member
	for _, m := range k.fleet.sorted {
		if m.worker == nil && !m.verdict.Reject {
			list = append(list, m)
		}
	}
	slices.SortFunc(list, func(a, b *member) int {
		_, runsA := k.Observed.Get(a.pod.UID)
		_, runsB := k.Observed.Get(b.pod.UID)
		return compare(a.pod, runsA, b.pod, runsB)
	})
	return list
}

// work gives m a worker. With stops in ends, the worker ends the pod at once.
func (k *keeper) work(ctx context.Context, m *member, ends ...pod.Stop) {
	w := worker.New(k.Worker, m.pod)
	if len(ends) == 0 {
		k.fleet.metrics.begins(m.pod.Pod, k.fleet.now().Sub(m.pod.Seen))
	}
	for _, s := range ends {
		w.Stop(s)
	}
	k.fleet.mu.Lock()
	m.worker = w
	k.fleet.mu.Unlock()
	uid := m.pod.UID
	k.wg.Go(func() {
		if k.runWorker(ctx, w) != nil {
			return // ctx has ended and the worker has detached
		}
		k.mu.Lock()
		k.ended = append(k.ended, uid)
		k.mu.Unlock()
		k.fleet.Reconsider()
	})
}

// runWorker runs a worker to its end. After a panic that the worker did not recover from itself, it runs the worker
// again once the pod's delay is over.
func (k *keeper) runWorker(ctx context.Context, w *worker.Worker) error {
	for {
		err := guard.Call(func() error { return w.Run(ctx) })
		p := guard.Of(err)
		if p == nil {
			return err
		}
		until := k.Panicked(w.State().Pod, "worker", p)
		if err := retry.Sleep(ctx, until.Sub(k.fleet.now())); err != nil {
			return err
		}
	}
}

// bury drops the pods whose workers have ended. A pod that a source wants again meanwhile starts afresh, after its
// status was dropped. A pod that the API server is deleting stays a member until the API server has dropped it.
func (k *keeper) bury() {
	k.mu.Lock()
	ended := k.ended
	k.ended = nil
	k.mu.Unlock()
	k.fleet.mu.Lock()
	for _, uid := range ended {
		m := k.fleet.members[uid]
		m.endAhead()
		if p, wanted := k.Desired.Get(uid); wanted && p.DeletionTimestamp != nil {
			m.desired, m.gone, m.orphan = p, true, false
			continue
		}
		k.fleet.drop(m)
	}
	k.fleet.mu.Unlock()
	for _, uid := range ended {
		k.changed(uid)
		k.fleet.mu.Lock()
		p, wanted := k.Desired.Get(uid)
		again := wanted && k.fleet.members[uid] == nil
		if again {
			k.fleet.add(&member{pod: p, desired: p})
		}
		k.fleet.mu.Unlock()
		if again {
			k.changed(uid)
		}
	}
}

// sweep looks in the runtime, on disk and in cgroups for pods that no source wants, and ends them.
func (k *keeper) sweep(ctx context.Context) {
	for _, o := range k.Observed.Snapshot().All() {
		if k.adopt(ctx, o) {
			k.fleet.log.Warn("a pod that no source asks for keeps running: its manifest may be one that cannot be read",
				"pod", o.Namespace+"/"+o.Name, "uid", o.UID)
		}
	}
	left, err := k.Leftovers.Pods()
	if err != nil {
		k.fleet.log.Warn("cannot look for all leftovers of earlier pods, continuing with the known ones", "err", err)
	}
	for _, uid := range left {
		if _, seen := k.Observed.Get(uid); !seen {
			k.adopt(ctx, &pod.Observed{UID: uid, Name: string(uid)})
		}
	}
}

// adopt ends a pod that is no member, with the grace period that its sandbox records. A pod whose manifest may be one
// that cannot be used now keeps running, and adopt returns true.
func (k *keeper) adopt(ctx context.Context, o *pod.Observed) (kept bool) {
	if _, member := k.fleet.known(o.UID); member {
		return false
	}
	if k.Manifests.MayWant(o) {
		return true
	}
	k.fleet.mu.Lock()
	m := &member{pod: pod.Orphan(o), orphan: true, verdict: Verdict{Admit: true}}
	k.fleet.add(m)
	k.fleet.mu.Unlock()
	k.fleet.log.Info("ending a pod that no source asks for", "pod", pod.FullName(m.pod.Pod), "uid", o.UID)
	k.work(ctx, m, pod.Stop{
		Reason: pod.StopDeleted, Message: "no source asks for the pod", Remove: true, At: k.fleet.now(),
	})
	k.changed(o.UID)
	return false
}

// Passed implements worker.Owner.
func (k *keeper) Passed(uid types.UID) {
	k.Statuses.Publish(uid)
	k.notify(uid)
	if m, ok := k.fleet.Member(uid); ok && m.State.Stage >= worker.Terminating {
		k.fleet.Reconsider() // its resources may be free
	}
}

// Worked implements worker.Owner.
func (k *keeper) Worked(o worker.Operation, d time.Duration) { k.fleet.metrics.took(o, d) }

// Panicked implements worker.Owner.
func (k *keeper) Panicked(p *pod.Pod, what string, e *guard.Panic) time.Time {
	until := k.Asides.Panicked(p.Pod, what, e)
	k.changed(p.UID)
	return until
}

// SetAside implements worker.Owner.
func (k *keeper) SetAside(uid types.UID) time.Time { return k.Asides.Until(uid) }

// Recovered implements worker.Owner.
func (k *keeper) Recovered(uid types.UID) { k.Asides.Recovered(uid) }

// changed publishes the status of a pod that the loop has changed, and notifies the watchers. It is activity.
func (k *keeper) changed(uid types.UID) {
	k.Statuses.PublishNow(uid)
	k.notify(uid)
}

func (k *keeper) notify(uid types.UID) {
	for _, w := range k.Watchers {
		w.PodChanged(uid)
	}
	k.Idle.Stir()
}
