package event

import "time"

// The numbers of client-go's event correlator, so that Berth's events look like
// a kubelet's. Its third rule, which drops events of an object after 25, is
// left out: nothing is lost here.
const (
	similarMax   = 10
	similarQuiet = 10 * time.Minute
)

// similar counts the messages that one object had with one type and reason.
type similar struct {
	Distinct int       // messages that became events of their own
	Last     time.Time // the last event of any message
}

// verdict says where an event goes.
type verdict int

const (
	fresh   verdict = iota // becomes an event of its own
	repeat                 // counts on the event with the same message
	combine                // counts on the event that stands for all similar ones
)

// decide says where an event goes, and what is counted afterwards. known: an event
// with the same object, type, reason and message is still in the ring.
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
