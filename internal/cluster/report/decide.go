package report

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/model/pod"
)

const (
	// fairness is how often the oldest row is sent, whatever its class: once in this many rows.
	fairness = 8
	// firstDelay is the time to the next try after a failure. It doubles up to lastDelay.
	firstDelay = 200 * time.Millisecond
	lastDelay  = 30 * time.Second
	// lastOutage is the maximum if the API server does not answer at all.
	lastOutage = 5 * time.Second
	// refusedDelay is the maximum for a status that the API server has refused.
	refusedDelay = 5 * time.Minute
	// newStateDelay is the time to the first try of a new status if the previous one has failed.
	newStateDelay = 500 * time.Millisecond
	// firstRepair is the interval between patches against another writer. It doubles up to lastRepair.
	firstRepair = time.Second
	lastRepair  = 5 * time.Minute
	// quiet is how long another writer must leave a status alone until it is forgotten.
	quiet = 10 * time.Minute
)

// class orders waiting rows.
type class int

const (
	ending    class = iota // the phase becomes terminal: controllers and quotas wait for it
	readiness              // Ready changes, and with it endpoints; or the pod can be deleted
	remaining
)

func urgency(api, ours corev1.PodStatus, gone bool) class {
	switch {
	case pod.Ended(ours.Phase) && !pod.Ended(api.Phase):
		return ending
	case gone, ready(api) != ready(ours):
		return readiness
	}
	return remaining
}

func ready(s corev1.PodStatus) bool {
	c := condition(s.Conditions, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// next returns the row to send, or nil if none is due. In that case at is the time when the first one becomes due, or
// zero if none waits for a time. oldest selects by age alone.
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

// older reports whether object a is an earlier version than b. They must have the same UID.
func older(a, b *corev1.Pod) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order < 0
}

// answer is the meaning of an API server's response.
type answer int

const (
	accepted answer = iota // no error
	gone                   // the pod does not exist any longer
	stale                  // the object has changed meanwhile
	busy                   // not now; nothing was done
	failed                 // the change may have been made
	lost                   // no response, or the server rejects all requests
	refused                // invalid or not allowed
)

// judge returns the meaning of an error, and how long the API server asks to wait, or 0 if it does not say.
func judge(err error) (answer, time.Duration) {
	if err == nil {
		return accepted, 0
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

// replaced reports whether an error is about the UID in a patch: another pod has the name now.
func replaced(err error) bool {
	cause, ok := apierrors.StatusCause(err, metav1.CauseTypeFieldValueInvalid)
	return ok && cause.Field == "metadata.uid"
}

// delay returns the time to the next try after a number of failures in a row. fraction is random, from 0 to 1, so that
// pods and nodes do not retry at the same time.
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
	d := retry.Delay(firstDelay, longest, max(fails, 1))
	return d/2 + time.Duration(fraction*float64(d/2))
}

// sooner returns when a row with a new status is due. A new status waits neither for a repair nor for the whole
// back-off of the previous one.
func sooner(due, hold, now time.Time, fails int) time.Time {
	at := now
	if fails > 0 {
		at = at.Add(newStateDelay)
	}
	if due.Before(at) {
		return due
	}
	if at.Before(hold) {
		return hold
	}
	return at
}

// outage is a period during which the API server does not answer. Only one row at a time is sent then.
type outage struct {
	fails int
	since time.Time // the last failure
	until time.Time // the next try
}

// lost returns the outage after a request without a response. A request that began before the last failure does not
// count.
func (o outage) lost(began, now time.Time, fraction float64) outage {
	if o.fails > 0 && began.Before(o.since) {
		return o
	}
	fails := o.fails + 1
	return outage{fails: fails, since: now, until: now.Add(delay(lost, fails, 0, fraction))}
}

// room returns how many rows may be in flight.
func (o outage) room(limit int, now time.Time) int {
	switch {
	case o.fails == 0:
		return limit
	case now.Before(o.until):
		return 0
	}
	return 1
}

// repairs counts the patches against another writer that changes the agent's fields.
type repairs struct {
	n    int
	last time.Time
}

// next returns when the next repair is allowed, and the count after it.
func (r repairs) next(now time.Time) (time.Time, repairs) {
	if r.n > 0 && now.Sub(r.last) > quiet {
		r = repairs{}
	}
	if r.n == 0 {
		return now, repairs{n: 1, last: now}
	}
	at := r.last.Add(retry.Delay(firstRepair, lastRepair, r.n))
	if at.After(now) {
		return at, r
	}
	return now, repairs{n: r.n + 1, last: now}
}
