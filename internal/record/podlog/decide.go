package podlog

import "time"

// writerGrace is how long a file that its writer does not close may still get lines
// after a later one has some, or after the container's end.
const writerGrace = 100 * time.Millisecond

// progress is where a reader that has read all of a file stands.
type progress struct {
	Ended  bool // the container has
	Closed bool // the file's last writer has closed it
	Next   bool // there is a later file
	Filled bool // the later file has content
}

// due says that nothing more is to be expected in the file, but for what a writer
// may still have in its hands.
func (p progress) due() bool {
	return p.Ended || p.Next && (p.Closed || p.Filled)
}

// verdict is what a reader does that has read all of a file.
type verdict int

const (
	stay   verdict = iota // wait until something happens
	linger                // read on after a while, or when something happens
	leave                 // the file is done
)

// decide says what a reader does that began its last pass over the file at began
// and found no more. due is when progress became due and grace begins; wait is how long it lingers.
func decide(p progress, due, began, now time.Time, grace time.Duration) (v verdict, wait time.Duration) {
	switch {
	case !p.due():
		return stay, 0
	case p.Closed, began.Sub(due) >= grace:
		return leave, 0
	}
	return linger, max(0, grace-now.Sub(due))
}
