package publish

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/base/retry"
)

const (
	firstRepeat = time.Second
	lastRepeat  = 5 * time.Minute
	firstRetry  = 500 * time.Millisecond
	lastRetry   = 30 * time.Second
	// maxName is the longest name of an object, a DNS subdomain (RFC 1123).
	maxName = 253
)

// class orders waiting events.
type class int

const (
	warning class = iota
	normal
	repeat
)

// key names an event.
type key struct{ namespace, name string }

// entry is a waiting event.
type entry struct {
	event corev1.Event
	class class
	since uint64    // its order within the class: the revision of its first unsent change
	due   time.Time // not before

}

// history records the patches of an event that the API server has.
type history struct {
	patches int
	last    time.Time
}

// known has the histories of the last max/2 to max sent events. An event whose history it has forgotten costs a
// request more when it is sent again. Its maps are never emptied and filled again: a map of Go whose keys come and go
// grows.
type known struct {
	max        int
	young, old map[key]history
}

func (s *known) find(k key) (history, bool) {
	if h, ok := s.young[k]; ok {
		return h, true
	}
	h, ok := s.old[k]
	return h, ok
}

func (s *known) put(k key, h history) {
	if s.young == nil || len(s.young) >= s.max/2 {
		s.old, s.young = s.young, map[key]history{}
	}
	s.young[k] = h
}

// next returns the entry to send. If none is due, at is the time when one will be, or zero if none waits.
func next(queue map[key]*entry, now time.Time) (best *entry, at time.Time) {
	for _, e := range queue {
		switch {
		case e.due.After(now):
			if at.IsZero() || e.due.Before(at) {
				at = e.due
			}
		case best == nil || e.class < best.class || e.class == best.class && e.since < best.since:
			best = e
		}
	}
	return best, at
}

// victim returns the entry to drop from a full queue: the oldest of the lowest class.
func victim(queue map[key]*entry) *entry {
	var worst *entry
	for _, e := range queue {
		if worst == nil || e.class > worst.class || e.class == worst.class && e.since < worst.since {
			worst = e
		}
	}
	return worst
}

func classify(e *corev1.Event, sent bool) class {
	switch {
	case sent:
		return repeat
	case e.Type == corev1.EventTypeWarning:
		return warning
	}
	return normal
}

// distance returns the time between two patches of an event.
func distance(patches int) time.Duration { return retry.Delay(firstRepeat, lastRepeat, patches+1) }

// delay returns the time to the next try after a number of failures in a row. fraction is random, from 0 to 1.
func delay(fails int, fraction float64) time.Duration {
	d := retry.Delay(firstRetry, lastRetry, max(fails, 1))
	return d/2 + time.Duration(fraction*float64(d/2))
}

// render returns an event in the form to create at the API server.
func render(e corev1.Event) *corev1.Event {
	object := e
	object.Name = shorten(e.Name)
	object.ResourceVersion, object.CreationTimestamp = "", metav1.Time{}
	return &object
}

// shorten cuts a name to the API's maximum. It keeps the end, which distinguishes the events of one object.
func shorten(name string) string {
	if len(name) <= maxName {
		return name
	}
	dot := strings.LastIndexByte(name, '.')
	end := name[dot:]
	return strings.TrimRight(name[:maxName-len(end)], "-.") + end
}

// amendment holds the fields that a repeat changes.
type amendment struct {
	Count         int32       `json:"count"`
	LastTimestamp metav1.Time `json:"lastTimestamp"`
	Message       string      `json:"message"`
}
