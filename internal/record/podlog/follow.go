package podlog

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/logfile"
)

// follow reads until the container has ended and everything it wrote is read.
func (r *reader) follow(ctx context.Context) (err error) {
	if r.curWD, err = r.events.add(r.cur.f); err != nil {
		return err
	}
	opened := true // the first pass over cur
	for {
		// Facts read before a pass also hold after it: everything written until then has been read.
		began := time.Now()
		p := progress{Ended: r.ended(), Closed: r.cur.gzip || r.overtaken || r.events.isClosed(r.curWD)}
		again, err := r.pass(ctx)
		if err != nil {
			return err
		}
		if again {
			continue
		}
		if again, err = r.lookOut(&p, opened); err != nil {
			return err
		}
		opened = false
		if again {
			continue
		}
		v, wait := r.decide(p, began)
		switch {
		case v != leave:
			err = r.wait(ctx, p, v, wait)
		case r.next == nil:
			return r.torn()
		default:
			err = r.turnFollowing()
			opened = true
		}
		if err != nil {
			return err
		}
	}
}

// decide is the decision of a reader whose pass over cur, begun at began, found nothing new.
func (r *reader) decide(p progress, began time.Time) (verdict, time.Duration) {
	v, wait := decide(p, r.due, began, time.Now(), r.grace)
	if v == leave && p.Next && !p.Closed && logfile.Written(r.cur.f) {
		return decide(p, r.due, began, time.Now(), r.heldGrace)
	}
	return v, wait
}

// pass reads the rest of cur and writes it out. again says that the file was emptied meanwhile and must be read from
// its beginning.
func (r *reader) pass(ctx context.Context) (again bool, err error) {
	if err := r.drain(ctx); err != nil {
		return false, err
	}
	if again, err = r.cur.truncated(); again || err != nil {
		return again, err
	}
	return false, r.out.w.Flush()
}

// lookOut looks for the next file, completes p and records since when cur is due. again says that no writer uses cur
// any more, so that one more pass reads all of it.
func (r *reader) lookOut(p *progress, opened bool) (again bool, err error) {
	if !r.overtaken && r.events.takeNames() {
		if again, err = r.lookAround(); again || err != nil {
			return again, err
		}
	}
	if r.next != nil {
		info, err := r.next.f.Stat()
		if err != nil {
			return false, err
		}
		p.Next, p.Filled = true, info.Size() > 0
	}
	switch {
	case !p.due():
		r.due = time.Time{}
	case r.due.IsZero() && opened && !p.Ended:
		r.due, err = changed(r.cur.f) // rotated before it was opened, so the rename counts
	case r.due.IsZero():
		r.due = time.Now()
	}
	return false, err
}

// lookAround finds the file after cur, and whether that file was rotated too. again says that one more pass reads all
// of cur.
func (r *reader) lookAround() (again bool, err error) {
	if r.next != nil { // an empty file may be rotated before it has content
		r.overtaken = !leadsTo(r.path, r.next.info)
		return r.overtaken, nil
	}
	if again, err = r.lookAhead(); again {
		r.events.putNames()
	}
	if again || err != nil || r.next == nil {
		return again, err
	}
	r.overtaken = r.next.f.Name() != r.path
	r.nextWD, err = r.events.add(r.next.f)
	return r.overtaken, err
}

// changed returns when a file was last written or renamed.
func changed(f *os.File) (time.Time, error) {
	var s unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &s); err != nil {
		return time.Time{}, fmt.Errorf("stat log %s: %w", f.Name(), err)
	}
	return time.Unix(s.Ctim.Unix()), nil
}

// turnFollowing continues with the next file.
func (r *reader) turnFollowing() error {
	r.events.remove(r.curWD)
	r.curWD, r.due = r.nextWD, time.Time{}
	r.events.putNames() // there may be files after it
	return r.turn()
}

// ended reports whether the container has ended.
func (r *reader) ended() bool {
	select {
	case <-r.Ended:
		return true
	default:
		return false
	}
}

// wait returns after an event of the files, after the end of the container if p does not include it, or after the
// linger time.
func (r *reader) wait(ctx context.Context, p progress, v verdict, linger time.Duration) error {
	var over <-chan time.Time
	if v != stay {
		t := time.NewTimer(linger)
		defer t.Stop()
		over = t.C
	}
	ended := r.Ended
	if p.Ended {
		ended = nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-r.events.wake.C():
		return r.events.failed()
	case <-over:
	case <-ended:
	}
	return nil
}
