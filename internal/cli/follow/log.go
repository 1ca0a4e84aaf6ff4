package follow

import (
	"bytes"
	"context"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/pod"
)

// logTrack is one container's log: its instances one after the other.
type logTrack struct {
	seen map[string]bool // instances by container id
	done chan struct{}   // closed when the newest instance's log is shown
	last *time.Time      // the time of the last line; only of the goroutine that shows
}

// followLogs shows the log of every container instance that is new.
func (s *session) followLogs(t *track) {
	for _, c := range pod.Containers(t.pod) {
		st, _ := status(t.pod, c.Name)
		for _, i := range instances(st) {
			s.followInstance(t, c.Name, i)
		}
	}
}

func (s *session) followInstance(t *track, container string, i instance) {
	l := t.logs[container]
	if l == nil {
		l = &logTrack{seen: map[string]bool{}, done: make(chan struct{}), last: new(time.Time)}
		close(l.done)
		t.logs[container] = l
	}
	if l.seen[i.id] {
		return
	}
	l.seen[i.id] = true
	before, done := l.done, make(chan struct{})
	l.done = done
	s.group.Go(func() error {
		defer close(done)
		select {
		case <-before:
			s.copyLog(t, container, i, l.last)
		case <-s.ctx.Done():
		}
		return nil
	})
}

// copyLog shows one instance's log until the container ends. What an earlier
// instance wrote is not shown again: the request may come when the container
// has been restarted already, and is then about the next one.
func (s *session) copyLog(t *track, container string, i instance, last *time.Time) {
	opts := corev1.PodLogOptions{Container: container, Timestamps: true, Previous: i.previous, Follow: !i.previous}
	if !last.IsZero() {
		opts.SinceTime = &metav1.Time{Time: *last}
	}
	prefix := container
	if len(s.pods) > 1 {
		prefix = s.name(t) + "/" + container
	}
	lines := s.logs.Prefixed(prefix + " | ")
	err := s.Client.Logs(s.ctx, t.key, opts, &stamped{w: lines, after: *last, last: last})
	_ = lines.Close() // as with Write: nobody to tell
	if err != nil && s.ctx.Err() == nil && !apierrors.IsBadRequest(err) && !apierrors.IsNotFound(err) {
		s.say(t, "log of "+container+" breaks off: "+err.Error())
	}
}

// tails are closed when the logs of the pod, as far as they were begun, are shown.
func (t *track) tails() []<-chan struct{} {
	var all []<-chan struct{}
	for _, l := range t.logs {
		all = append(all, l.done)
	}
	return all
}

// drain waits until logs whose containers have ended are shown.
func (s *session) drain(tails []<-chan struct{}) {
	ctx, cancel := context.WithTimeout(s.ctx, drainTime)
	defer cancel()
	for _, shown := range tails {
		select {
		case <-shown:
		case <-ctx.Done():
			return
		}
	}
}

// stamped takes lines that begin with a time and a space, drops those not after
// a moment, and writes the others without the time.
type stamped struct {
	w     io.Writer
	after time.Time
	last  *time.Time // the newest time that was written

	head []byte // the beginning of a line whose time is not complete
	mid  bool   // within a line
	drop bool   // the line is one of those dropped
}

// Write takes whole lines and pieces of them.
func (s *stamped) Write(data []byte) (int, error) {
	for piece := range bytes.Lines(data) {
		if err := s.piece(piece); err != nil {
			return 0, err
		}
	}
	return len(data), nil
}

func (s *stamped) piece(p []byte) error {
	if !s.mid {
		p = append(s.head, p...)
		s.head = nil
		space := bytes.IndexByte(p, ' ')
		if space < 0 && p[len(p)-1] != '\n' && len(p) <= len(time.RFC3339Nano) {
			s.head = p
			return nil
		}
		s.mid, s.drop = true, false
		if at, err := time.Parse(time.RFC3339Nano, string(p[:max(space, 0)])); err == nil {
			p = p[space+1:]
			s.drop = !at.After(s.after)
			if !s.drop {
				*s.last = at
			}
		}
	}
	if len(p) > 0 && p[len(p)-1] == '\n' {
		s.mid = false
	}
	if s.drop {
		return nil
	}
	_, err := s.w.Write(p)
	return err
}
