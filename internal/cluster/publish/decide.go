package publish

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	firstRepeat = time.Second
	lastRepeat  = 5 * time.Minute
	firstRetry  = 500 * time.Millisecond
	lastRetry   = 30 * time.Second
	// maxName is the longest name of an object, a DNS subdomain (RFC 1123).
	maxName = 253
)

// class orders what waits.
type class int

const (
	warning class = iota
	normal
	repeat
)

// key names an event.
type key struct{ namespace, name string }

// entry is an event that waits.
type entry struct {
	event corev1.Event
	class class
	since uint64    // its place among those of its class: the revision of its first unsent change
	due   time.Time // not before

}

// next picks the entry to send; else at is when one is due, zero when none waits.
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

// victim is the entry to drop from a full queue: the oldest of the least class.
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

// distance is the time from one patch of an event to the next.
func distance(patches int) time.Duration { return min(firstRepeat<<min(patches, 20), lastRepeat) }

// retry is the time to the next try, fraction (0 to 1) being chance.
func retry(fails int, fraction float64) time.Duration {
	d := min(firstRetry<<min(max(fails-1, 0), 20), lastRetry)
	return d/2 + time.Duration(fraction*float64(d/2))
}

// render is an event as it is made at the API server.
func render(e corev1.Event) *corev1.Event {
	object := e
	object.Name = shorten(e.Name)
	object.ResourceVersion, object.CreationTimestamp = "", metav1.Time{}
	return &object
}

// shorten cuts a name to what the API takes and keeps its end, which tells events of one object apart.
func shorten(name string) string {
	if len(name) <= maxName {
		return name
	}
	dot := strings.LastIndexByte(name, '.')
	end := name[dot:]
	return strings.TrimRight(name[:maxName-len(end)], "-.") + end
}

// amendment is what a repeat changes.
type amendment struct {
	Count         int32       `json:"count"`
	LastTimestamp metav1.Time `json:"lastTimestamp"`
	Message       string      `json:"message"`
}
