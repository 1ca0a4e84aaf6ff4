package report

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

const (
	// fairness: of so many rows one is the oldest, however urgent the others are.
	fairness = 8
	// firstDelay and lastDelay bound the time to the next try after a failure, which doubles.
	firstDelay = 200 * time.Millisecond
	lastDelay  = 30 * time.Second
	// lastOutage bounds it when the API server did not answer at all.
	lastOutage = 5 * time.Second
	// refusedDelay is between tries of what the API server has refused.
	refusedDelay = 5 * time.Minute
	// renewed is how soon a new state is tried while the one before has failed.
	renewed = 500 * time.Millisecond
	// firstRepair and lastRepair bound the distance of patches against another writer.
	firstRepair = time.Second
	lastRepair  = 5 * time.Minute
	// quiet is how long the other writer has to be silent to be forgotten.
	quiet = 10 * time.Minute
)

// class orders rows that wait.
type class int

const (
	ending class = iota // the phase becomes terminal: controllers and quotas wait for it
	turn                // Ready changes, so that endpoints do; or the pod can be deleted
	other
)

func urgency(api, ours corev1.PodStatus, gone bool) class {
	switch {
	case terminal(ours.Phase) && !terminal(api.Phase):
		return ending
	case gone, ready(api) != ready(ours):
		return turn
	}
	return other
}

func ready(s corev1.PodStatus) bool {
	c := condition(s.Conditions, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// next picks the row to send, nil when none can be; then at is when one may be due,
// zero when nothing is. oldest: by age alone.
func next(dirty map[types.UID]*row, now time.Time, oldest bool) (best *row, at time.Time) {
	for _, r := range dirty {
		switch {
		case r.busy:
		case r.due.After(now):
			if at.IsZero() || r.due.Before(at) {
				at = r.due
			}
		case best == nil || before(r, best, oldest):
			best = r
		}
	}
	return best, at
}

func before(a, b *row, oldest bool) bool {
	if a.class != b.class && !oldest {
		return a.class < b.class
	}
	if !a.since.Equal(b.since) {
		return a.since.Before(b.since)
	}
	return a.UID < b.UID
}

// older says whether an object of the API was there before another of the same UID.
func older(a, b *corev1.Pod) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order < 0
}

// answer is what an error of the API server means.
type answer int

const (
	taken   answer = iota // no error
	gone                  // there is no such pod any more
	stale                 // the object is another than was thought
	busy                  // not now; nothing was done
	failed                // something may have been done
	lost                  // no answer, or none to anybody
	refused               // not in this form
)

// judge says what an error means, and how long the API server wants to be left alone (0: it
// did not say).
func judge(err error) (answer, time.Duration) {
	if err == nil {
		return taken, 0
	}
	seconds, _ := apierrors.SuggestsClientDelay(err)
	after := time.Duration(seconds) * time.Second
	var status apierrors.APIStatus
	switch {
	case apierrors.IsNotFound(err), replaced(err):
		return gone, 0
	case apierrors.IsConflict(err):
		return stale, 0
	case apierrors.IsTooManyRequests(err):
		return busy, after
	case apierrors.IsUnauthorized(err), !errors.As(err, &status), status.Status().Code == 0:
		return lost, after
	case status.Status().Code >= 500:
		return failed, after
	}
	return refused, 0
}

// replaced says whether an error is about the UID that a patch is for: the name has
// another pod now.
func replaced(err error) bool {
	cause, ok := apierrors.StatusCause(err, metav1.CauseTypeFieldValueInvalid)
	return ok && cause.Field == "metadata.uid"
}

// delay is the time to the next try after so many failures in a row. fraction, from 0
// to 1, is chance, which keeps pods and nodes apart.
func delay(a answer, fails int, after time.Duration, fraction float64) time.Duration {
	longest := lastDelay
	switch {
	case after > 0:
		return after + time.Duration(fraction*float64(after)/4)
	case a == refused:
		longest = refusedDelay
	case a == lost:
		longest = lastOutage
	}
	d := longest
	if fails < 20 {
		d = min(d, firstDelay<<max(fails-1, 0))
	}
	return d/2 + time.Duration(fraction*float64(d/2))
}

// sooner is when a row is due whose state has changed: a new state waits neither for the
// repair nor for the whole backoff of the one before.
func sooner(due, hold, now time.Time, fails int) time.Time {
	at := now
	if fails > 0 {
		at = at.Add(renewed)
	}
	if due.Before(at) {
		return due
	}
	if at.Before(hold) {
		return hold
	}
	return at
}

// outage is a time in which the API server answers nobody. One row at a time tries then.
type outage struct {
	fails int
	since time.Time // the last failure
	until time.Time // the next try
}

// lost is the outage after a request without an answer. One that began before the last
// failure tells nothing new.
func (o outage) lost(began, now time.Time, fraction float64) outage {
	if o.fails > 0 && began.Before(o.since) {
		return o
	}
	fails := o.fails + 1
	return outage{fails: fails, since: now, until: now.Add(delay(lost, fails, 0, fraction))}
}

// room is how many rows may be in flight.
func (o outage) room(most int, now time.Time) int {
	switch {
	case o.fails == 0:
		return most
	case now.Before(o.until):
		return 0
	}
	return 1
}

// repairs are the patches against another writer that has changed what is ours.
type repairs struct {
	n    int
	last time.Time
}

// next says when the next one may be, and what is known then.
func (r repairs) next(now time.Time) (time.Time, repairs) {
	if r.n > 0 && now.Sub(r.last) > quiet {
		r = repairs{}
	}
	if r.n == 0 {
		return now, repairs{n: 1, last: now}
	}
	at := r.last.Add(min(firstRepair<<min(r.n-1, 20), lastRepair))
	if at.After(now) {
		return at, r
	}
	return now, repairs{n: r.n + 1, last: now}
}
