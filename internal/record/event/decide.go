package event

import "time"

// The limits of client-go's event correlator, so that Berth's events look like a kubelet's. Its third rule drops events
// of an object after 25. That rule is omitted, so that no event is lost.
const (
	similarMax   = 10
	similarQuiet = 10 * time.Minute
)

// similar counts the messages of one object with the same type and reason.
type similar struct {
	Distinct int       // messages with an event of their own
	Last     time.Time // time of the last event with any message
}

// verdict is how an event is recorded.
type verdict int

const (
	fresh   verdict = iota // a new event
	repeat                 // counted on the event with the same message
	combine                // counted on the event for all similar messages
)

// decide returns how an event is recorded, and the new counts. known says that the ring still has an event with the
// same object, type, reason and message.
func decide(s similar, known bool, now time.Time) (verdict, similar) {
	if now.Sub(s.Last) > similarQuiet {
		s.Distinct = 0
	}
	s.Last = now
	switch {
	case known:
		return repeat, s
	case s.Distinct >= similarMax:
		return combine, s
	}
	s.Distinct++
	return fresh, s
}
