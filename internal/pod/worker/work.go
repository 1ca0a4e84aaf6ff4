package worker

import "time"

// Operation is the purpose of work on a pod, in the kubelet's terms.
type Operation string

// The operations. Create is the work until a pod's first start. Update is the work after a change of the pod. Sync is
// all other work while the pod should run. Kill stops its containers, and CleaningUp undoes the rest.
const (
	Create     Operation = "create"
	Update     Operation = "update"
	Sync       Operation = "sync"
	Kill       Operation = "kill"
	CleaningUp Operation = "terminated"
)

// work is a period during which tasks of a pod run. Only the goroutine of Run uses it.
type work struct {
	began    time.Time // zero: no task runs
	of       Operation
	passed   bool // there was a pass before
	revision int  // of the pod at the previous pass
}

// pass records a pass that began at now, and whether tasks run after it. It returns the operation that has ended by
// then, and when that began; "" if none has.
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
