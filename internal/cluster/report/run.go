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

// Run sends the rows that Set queues until ctx ends. It returns when no request is in flight. Errors of the API
// server are logged and retried, never returned.
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
		case <-w.wake.C():
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

// launch sends as many rows as may be in flight. It returns the time until the next row is due, or 0 if no row waits
// for a time.
func (w *Writer) launch(ctx context.Context, flying *sync.WaitGroup) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		now := time.Now()
		if w.busy >= w.outage.room(w.opts.InFlight, now) {
			if w.busy == 0 && len(w.dirty) > 0 {
				return w.outage.until.Sub(now)
			}
			return 0 // the end of a request wakes Run
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
			job.send(ctx)
			if ctx.Err() == nil && w.finish(e, &job) && w.opts.Dropped != nil {
				w.opts.Dropped(job.row.Row)
			}
		})
	}
}

// flight holds the requests for one version of one row. It has its own copy of the row.
type flight struct {
	w     *Writer
	row   row
	began time.Time

	patches, deletes, reads uint64
	wait                    time.Time // when the next repair is allowed; nothing is sent before
	err                     error
}

// send brings the row to the API server.
func (f *flight) send(ctx context.Context) {
	if f.row.reread ||
		f.row.Pod.ResourceVersion == "" { // a saved pod: its status in the API is unknown
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

// read gets the object. A node may not read a pod that does not exist. The patch detects that case.
func (f *flight) read(ctx context.Context) {
	f.reads++
	was := f.row.Pod
	latest, err := f.do(ctx, f.client().Get(), "")
	switch {
	case apierrors.IsForbidden(err):
	case err != nil:
		f.err = fmt.Errorf("read pod: %w", err)
	case latest.UID != was.UID:
		f.err = apierrors.NewNotFound(corev1.Resource("pods"), was.Name)
	default:
		f.row.Pod, f.row.reread = latest, false
	}
}

// patch sends the difference, unless the API server has already dropped that difference.
func (f *flight) patch(ctx context.Context) {
	r := &f.row
	want := merge(r.Pod, r.Status, r.first)
	patch, err := difference(r.Pod.Status, want)
	if err != nil {
		f.err = err
		return
	}
	again := r.sent != nil && equality.Semantic.DeepEqual(*r.sent, r.Status)
	if !r.reread && (patch == "" || again && patch == r.residue) {
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
	latest, err := f.do(ctx, request, "status")
	if err != nil {
		f.err = fmt.Errorf("patch pod status: %w", err)
		return
	}
	r.Pod, r.sent, r.reread = latest, &r.Status, false
	r.residue, _ = difference(latest.Status,
		merge(latest, r.Status, r.first)) // rendering the same objects has just succeeded
	if r.residue != "" {
		f.w.opts.Log.Debug("the API server has dropped a part of a pod status", "pod", podName(latest), "dropped",
			r.residue)
	}
}

func (f *flight) delete(ctx context.Context) {
	f.deletes++
	uid := f.row.Pod.UID
	_, err := f.do(ctx, f.client().Delete().Body(&metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &uid},
	}), "")
	switch a, _ := judge(err); a {
	case accepted, gone:
		f.row.dropped = uid
	default: // including a conflict: the pod was replaced or changed, and the next try reads it
		f.err = fmt.Errorf("delete pod: %w", err)
	}
}

func (f *flight) client() rest.Interface { return f.w.opts.Client.CoreV1().RESTClient() }

// do sends one request about the pod, once. The loop retries it with the newest status.
func (f *flight) do(ctx context.Context, r *rest.Request, subresource string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, f.w.opts.Timeout)
	defer cancel()
	r = r.Namespace(f.row.Pod.Namespace).Resource("pods").Name(f.row.Pod.Name).MaxRetries(0)
	if subresource != "" {
		r = r.SubResource(subresource)
	}
	latest := &corev1.Pod{}
	return latest, r.Do(ctx).Into(latest)
}

// finish stores the result of a flight, and queues the row again if needed. It reports whether the API server does
// not have the pod any longer.
func (w *Writer) finish(e *row, f *flight) (dropped bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.wake.Wake()
	now := time.Now()
	w.busy--
	e.busy = false
	w.stats.Patches += f.patches
	w.stats.Deletes += f.deletes
	w.stats.Reads += f.reads
	a, after := judge(f.err)
	w.answered(a, f.began, now)
	if w.rows[e.UID] != e || e.Pod.UID != f.row.Pod.UID {
		return false // forgotten or replaced meanwhile
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
		w.delivered(e, f)
		w.opts.Log.Debug("pod does not exist in the API server any longer", "pod", podName(e.Pod), "uid", e.dropped)
	case f.err != nil:
		w.failed(e, f, a, after, now)
	case !f.wait.IsZero():
		if e.version == f.row.version {
			e.due = f.wait
		}
	default:
		w.delivered(e, f)
	}
	return e.dropped == e.Pod.UID
}

// delivered records what the API server has accepted. The row stays queued if it has changed since.
func (w *Writer) delivered(e *row, f *flight) {
	if f.err == nil {
		w.stats.Changes += min(f.patches+f.deletes, 1)
		if f.patches > 0 && !e.since.IsZero() {
			w.synced.Observe(time.Since(e.since).Seconds())
		}
	}
	e.sent, e.residue, e.repairs = f.row.sent, f.row.residue, f.row.repairs
	e.done, e.fails, e.lost, e.reread = f.row.version, 0, false, false
	e.due, e.hold, e.since = time.Time{}, time.Time{}, time.Time{}
	if e.done == e.version {
		delete(w.dirty, e.UID)
	} else {
		e.since = time.Now()
		e.class = urgency(e.Pod.Status, e.Status, e.Gone)
	}
	w.settled.Wake()
}

// failed schedules the next try of a row.
func (w *Writer) failed(e *row, f *flight, a answer, after time.Duration, now time.Time) {
	w.stats.Failures++
	e.fails++
	e.lost = a == lost
	e.reread = e.reread || a == stale || a == failed || a == lost
	wait := delay(a, e.fails, after, rand.Float64())
	e.due = now.Add(wait)
	if after > 0 {
		e.hold = e.due
	}
	if a == refused && e.fails == 1 {
		w.opts.Log.Warn("the API server refuses a pod status, retrying", "pod", podName(e.Pod), "after", wait, "err",
			f.err)
		return
	}
	w.opts.Log.Debug("cannot send a pod status, retrying", "pod", podName(e.Pod), "after", wait, "err", f.err)
}

// answered updates the outage. Any response ends it.
func (w *Writer) answered(a answer, began, now time.Time) {
	switch {
	case a == lost:
		if w.outage.fails == 0 {
			w.opts.Log.Warn("pod statuses wait: the API server does not answer", "pods", len(w.dirty))
		}
		w.outage = w.outage.lost(began, now, rand.Float64())
	case w.outage.fails > 0:
		w.opts.Log.Info("the API server answers again, sending pod statuses", "pods", len(w.dirty))
		w.release()
	}
}

// recovered makes the rows due that an outage has held back.
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
