package report

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Run sends what Set brings until ctx ends, and returns when nothing is in flight.
// Errors of the API server are logged and made up for, never returned.
func (w *Writer) Run(ctx context.Context) error {
	var flying sync.WaitGroup
	defer flying.Wait()
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	for {
		answers, changed := w.health()
		if answers {
			wait := w.launch(ctx, &flying)
			if wait > 0 {
				alarm.Reset(wait)
			} else {
				alarm.Stop()
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
			w.recovered()
		case <-w.wake:
		case <-alarm.C:
		}
	}
}

func (w *Writer) health() (answers bool, changed <-chan struct{}) {
	if w.opts.Health == nil {
		return true, nil
	}
	return w.opts.Health.Answers()
}

// launch sends as many rows as may be in flight. It returns the time to the next one that
// waits for a time; 0: none does.
func (w *Writer) launch(ctx context.Context, flying *sync.WaitGroup) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		now := time.Now()
		if w.busy >= w.outage.room(w.opts.InFlight, now) {
			if w.busy == 0 && len(w.dirty) > 0 {
				return w.outage.until.Sub(now)
			}
			return 0 // an answer wakes Run
		}
		w.picks++
		e, at := next(w.dirty, now, w.picks%fairness == 0)
		if e == nil {
			if at.IsZero() {
				return 0
			}
			return at.Sub(now)
		}
		e.busy = true
		w.busy++
		job := flight{w: w, row: *e, began: now}
		flying.Go(func() {
			job.fly(ctx)
			if ctx.Err() == nil && w.land(e, &job) && w.opts.Dropped != nil {
				w.opts.Dropped(job.row.Row)
			}
		})
	}
}

// flight is the requests for one state of one row. It has a copy of the row.
type flight struct {
	w     *Writer
	row   row
	began time.Time

	patches, deletes, reads uint64
	wait                    time.Time // not sent: the other writer has had its turn too often
	err                     error
}

// fly brings the row to the API server.
func (f *flight) fly(ctx context.Context) {
	if f.row.doubt ||
		f.row.Pod.ResourceVersion == "" { // one from the node's record: what the API server shows is not known
		if f.read(ctx); f.err != nil {
			return
		}
	}
	if f.patch(ctx); f.err != nil || !f.wait.IsZero() {
		return
	}
	if f.row.Gone && f.row.Pod.DeletionTimestamp != nil && !mirror(f.row.Pod) {
		f.delete(ctx)
	}
}

// read gets the object. A node may not read a pod that is gone; the patch finds out then.
func (f *flight) read(ctx context.Context) {
	f.reads++
	was := f.row.Pod
	fresh, err := f.do(ctx, f.client().Get(), "")
	switch {
	case apierrors.IsForbidden(err):
	case err != nil:
		f.err = fmt.Errorf("read pod: %w", err)
	case fresh.UID != was.UID:
		f.err = apierrors.NewNotFound(corev1.Resource("pods"), was.Name)
	default:
		f.row.Pod, f.row.doubt = fresh, false
	}
}

// patch sends the difference, if there is one that the API server might keep.
func (f *flight) patch(ctx context.Context) {
	r := &f.row
	want := merge(r.Pod, r.Status, r.first)
	patch, err := difference(r.Pod.Status, want)
	if err != nil {
		f.err = err
		return
	}
	again := r.sent != nil && equality.Semantic.DeepEqual(*r.sent, r.Status)
	if !r.doubt && (patch == "" || again && patch == r.residue) {
		r.sent, r.residue = &r.Status, patch
		return
	}
	if again && patch != "" {
		at, repairs := r.repairs.next(f.began)
		if at.After(f.began) {
			f.wait = at
			return
		}
		r.repairs = repairs
	}
	f.patches++
	request := f.client().Patch(types.StrategicMergePatchType).Body(guarded(patch, r.Pod.UID))
	fresh, err := f.do(ctx, request, "status")
	if err != nil {
		f.err = fmt.Errorf("patch pod status: %w", err)
		return
	}
	r.Pod, r.sent, r.doubt = fresh, &r.Status, false
	r.residue, _ = difference(fresh.Status, merge(fresh, r.Status, r.first)) // rendered a moment ago
	if r.residue != "" {
		f.w.opts.Log.Debug("the API server has not kept all of a status", "pod", podName(fresh), "left", r.residue)
	}
}

func (f *flight) delete(ctx context.Context) {
	f.deletes++
	uid := f.row.Pod.UID
	_, err := f.do(ctx, f.client().Delete().Body(&metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &uid},
	}), "")
	switch a, _ := judge(err); a {
	case taken, gone:
		f.row.dropped = uid
	default: // a conflict too: the name has another pod now, or somebody else writes this one; the next try looks
		f.err = fmt.Errorf("delete pod: %w", err)
	}
}

func (f *flight) client() rest.Interface { return f.w.opts.Client.CoreV1().RESTClient() }

// do makes one request about the pod, once: its next try may have something newer to say.
func (f *flight) do(ctx context.Context, r *rest.Request, subresource string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, f.w.opts.Timeout)
	defer cancel()
	r = r.Namespace(f.row.Pod.Namespace).Resource("pods").Name(f.row.Pod.Name).MaxRetries(0)
	if subresource != "" {
		r = r.SubResource(subresource)
	}
	fresh := &corev1.Pod{}
	return fresh, r.Do(ctx).Into(fresh)
}

// land takes over what a flight has found out, and has the row sent again if need be. It
// says whether the API server has the pod no more.
func (w *Writer) land(e *row, f *flight) (dropped bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.awake()
	now := time.Now()
	w.busy--
	e.busy = false
	w.stats.Patches += f.patches
	w.stats.Deletes += f.deletes
	w.stats.Reads += f.reads
	a, after := judge(f.err)
	w.answered(a, f.began, now)
	if w.rows[e.UID] != e || e.Pod.UID != f.row.Pod.UID {
		return false // forgotten, or another pod meanwhile
	}
	if older(e.Pod, f.row.Pod) {
		e.Pod = f.row.Pod
	}
	if a == gone {
		f.row.dropped = e.Pod.UID
	}
	switch {
	case f.row.dropped == e.Pod.UID:
		e.dropped, e.version = e.Pod.UID, e.version+1
		f.row.version = e.version
		w.brought(e, f)
		w.opts.Log.Debug("pod is gone from the API server", "pod", podName(e.Pod), "uid", e.dropped)
	case f.err != nil:
		w.failed(e, f, a, after, now)
	case !f.wait.IsZero():
		if e.version == f.row.version {
			e.due = f.wait
		}
	default:
		w.brought(e, f)
	}
	return e.dropped == e.Pod.UID
}

// brought notes what the API server has taken. The row stays dirty if it has changed since.
func (w *Writer) brought(e *row, f *flight) {
	if f.err == nil {
		w.stats.Changes += min(f.patches+f.deletes, 1)
		if f.patches > 0 && !e.since.IsZero() {
			w.synced.Observe(time.Since(e.since).Seconds())
		}
	}
	e.sent, e.residue, e.repairs = f.row.sent, f.row.residue, f.row.repairs
	e.done, e.fails, e.lost, e.doubt = f.row.version, 0, false, false
	e.due, e.hold, e.since = time.Time{}, time.Time{}, time.Time{}
	if e.done == e.version {
		delete(w.dirty, e.UID)
	} else {
		e.since = time.Now()
		e.class = urgency(e.Pod.Status, e.Status, e.Gone)
	}
	w.settle()
}

// failed has a row sent again later.
func (w *Writer) failed(e *row, f *flight, a answer, after time.Duration, now time.Time) {
	w.stats.Failures++
	e.fails++
	e.lost = a == lost
	e.doubt = e.doubt || a == stale || a == failed || a == lost
	wait := delay(a, e.fails, after, rand.Float64())
	e.due = now.Add(wait)
	if after > 0 {
		e.hold = e.due
	}
	if a == refused && e.fails == 1 {
		w.opts.Log.Warn("the API server refuses the status of a pod", "pod", podName(e.Pod), "again in", wait, "err",
			f.err)
		return
	}
	w.opts.Log.Debug("the status of a pod is sent again", "pod", podName(e.Pod), "again in", wait, "err", f.err)
}

// answered keeps the outage: an answer of any kind ends it.
func (w *Writer) answered(a answer, began, now time.Time) {
	switch {
	case a == lost:
		if w.outage.fails == 0 {
			w.opts.Log.Warn("statuses of pods wait: the API server does not answer", "pods", len(w.dirty))
		}
		w.outage = w.outage.lost(began, now, rand.Float64())
	case w.outage.fails > 0:
		w.opts.Log.Info("statuses of pods are sent again", "pods", len(w.dirty))
		w.release()
	}
}

// recovered has rows tried at once that were held back by an outage.
func (w *Writer) recovered() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.release()
}

func (w *Writer) release() {
	w.outage = outage{}
	for _, e := range w.dirty {
		if e.lost {
			e.due, e.fails = e.hold, 0
		}
	}
}

func podName(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }
