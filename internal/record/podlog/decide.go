package podlog

import "time"

// writerGrace is how long a writer that does not close a file may still add lines to it. The time begins when a later
// file has lines or the container has ended.
const writerGrace = 100 * time.Millisecond

// heldGrace is the grace of a file that its writer still has open, although a later file has lines. A runtime that gets
// no time from the kernel writes late.
const heldGrace = 20 * writerGrace

// progress is the state of a reader that has read a whole file.
type progress struct {
	Ended  bool // the container has ended
	Closed bool // the last writer of the file has closed it
	Next   bool // there is a later file
	Filled bool // the later file has content
}

// due reports whether the file is complete, except for lines that a writer may still hold.
func (p progress) due() bool {
	return p.Ended || p.Next && (p.Closed || p.Filled)
}

// verdict is a decision: what a reader does when it has read everything that is in a file.
type verdict int

const (
	stay   verdict = iota // wait for an event
	linger                // read again after a delay or an event
	leave                 // the file is complete
)

// decide returns what a reader does when its last pass over the file, begun at began, found nothing new. due is when
// progress became due and the grace began. wait is how long to linger.
func decide(p progress, due, began, now time.Time, grace time.Duration) (v verdict, wait time.Duration) {
	switch {
	case !p.due():
		return stay, 0
	case p.Closed, began.Sub(due) >= grace:
		return leave, 0
	}
	return linger, max(0, grace-now.Sub(due))
}
