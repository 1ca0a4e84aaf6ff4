package worker

import "time"

// Operation is what the work on a pod is for, as a kubelet names it.
type Operation string

// The operations. What a pod needs for its first start is its creation; of a
// change of the pod the update; all else that is done while it is to run keeps it
// in sync. Then its containers are stopped, and what is left of it is undone.
const (
	Create     Operation = "create"
	Update     Operation = "update"
	Sync       Operation = "sync"
	Kill       Operation = "kill"
	CleaningUp Operation = "terminated"
)

// work is a stretch of time in which tasks of a pod run, one or several at a time.
// It is the goroutine's of Run.
type work struct {
	began    time.Time // zero: there is none
	of       Operation
	passed   bool // there has been a pass
	revision int  // of the pod at the last pass
}

// pass notes that a pass has begun at a time, and whether tasks run after it. It
// returns what has ended by that, and when it had begun; "" when nothing has.
func (k *work) pass(busy bool, revision int, now time.Time) (ended Operation, began time.Time) {
	switch {
	case busy && k.began.IsZero():
		k.began, k.of = now, Sync
		if !k.passed {
			k.of = Create
		} else if revision != k.revision {
			k.of = Update
		}
	case !busy && !k.began.IsZero():
		ended, began, k.began = k.of, k.began, time.Time{}
	}
	k.passed, k.revision = true, revision
	return ended, began
}
