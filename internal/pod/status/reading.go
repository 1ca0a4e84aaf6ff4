package status

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/guard"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/podstatus"
)

// Bounds of reading the termination messages of one pod. A pod can make a read hang in the kernel, for example with a
// FUSE file system whose server never answers.
const (
	// readPatience is how long a status waits for the message of a container.
	readPatience = 5 * time.Second
	// maxReadings is how many reads of one pod may be under way or hang. A container that ends while there are more
	// gets no message.
	maxReadings = 4
)

// reading is one read of the termination message of an exited container, in a goroutine of its own.
type reading struct {
	done    chan struct{} // closed when the message is read
	overdue <-chan struct{}
	message string // valid when done is closed
}

// result returns the message, or the error that stands for it. ok is false while the status should wait.
func (r *reading) result() (message string, ok bool) {
	select {
	case <-r.done:
		return r.message, true
	default:
	}
	select {
	case <-r.overdue:
		return fmt.Sprintf("Error on reading termination message: no answer after %v", readPatience), true
	default:
		return "", false
	}
}

// messages returns the termination messages of the containers whose end no status has shown yet. It reads each message
// once, when it first sees the end. While reads are under way it returns one of them in wait. The caller holds e.mu.
func (r *Record) messages(e *entry, in *podstatus.Input) (now map[string]string, wait *reading) {
	kept := map[string]*reading{}
	for _, run := range in.Observed.ContainersOf() {
		if run.State != pod.StateExited || podstatus.Reported(&in.Previous, in.Node.Runtime+"://"+run.ID) != nil {
			continue
		}
		one := e.readings[run.ID]
		if one == nil {
			one = r.read(e, in.Pod.UID, run)
		}
		kept[run.ID] = one
		message, ok := one.result()
		if !ok {
			wait = one
			continue
		}
		if now == nil {
			now = map[string]string{}
		}
		now[run.ID] = message
	}
	e.readings = kept
	return now, wait
}

// read starts to read the message of a container. The caller holds e.mu.
func (r *Record) read(e *entry, uid types.UID, run pod.ContainerStatus) *reading {
	path := ""
	if r.opts.Dirs != nil && run.TerminationMessagePath != "" {
		path = r.opts.Dirs.MessagePath(uid, run.Name, run.RestartCount)
	}
	overdue := make(chan struct{})
	one := &reading{done: make(chan struct{}), overdue: overdue}
	if !needsRead(run, path) {
		close(one.done)
		return one
	}
	if e.reading >= maxReadings {
		one.message = fmt.Sprintf("Error on reading termination message: %d reads of this pod's files hang",
			maxReadings)
		close(one.done)
		return one
	}
	e.reading++
	timer := time.AfterFunc(readPatience, func() {
		close(overdue)
		r.opts.Stale.Mark(uid)
	})
	end := func(message string) {
		one.message = message
		close(one.done)
		timer.Stop()
		e.mu.Lock()
		e.reading--
		e.mu.Unlock()
		r.opts.Stale.Mark(uid)
	}
	guard.Go(func() { end(terminationMessage(run, path)) }, func(p *guard.Panic) {
		end(fmt.Sprintf("Error on reading termination message: %v", p))
	})
	return one
}
