package follow

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/record/timeline"
)

// ErrAbandoned is returned after the third interrupt. The pods still end, but Run does not wait for them.
var ErrAbandoned = errors.New("left before the pods had ended")

// Options configure Run.
type Options struct {
	Client *client.Client
	// Pods lists the pods to follow, as the apply returned them.
	Pods []api.ApplyResult
	// Logs shows the containers' logs.
	Logs bool
	// Timeout is how long the pods may take to be ready or to end. 0 means no limit.
	Timeout time.Duration
	// UntilReady stops the pods when all of them have been ready or have ended.
	UntilReady bool
	// Interrupts delivers the user's interrupts. The first stops the pods within their grace period, the
	// second kills them, and the third returns without waiting.
	Interrupts <-chan os.Signal
	// Out receives the logs, Err the progress.
	Out, Err io.Writer
	// Draw writes the timeline of a pod's start.
	Draw func(io.Writer, *timeline.Timeline) error
	Now  func() time.Time
}

const (
	// drainTime limits the wait for the rest of a log after its container has ended.
	drainTime = 5 * time.Second
	// timelineTime limits the wait for a complete timeline after its pod is ready.
	timelineTime = time.Second
)

// session is one Run.
type session struct {
	Options
	ctx      context.Context
	group    *errgroup.Group
	start    time.Time
	pods     []*track
	byUID    map[types.UID]*track
	progress *Lines
	logs     *Lines
	changes  chan client.Change[corev1.Pod]
	events   chan *corev1.Event
	up       chan *track // pods whose start is complete and drawn
	pulling  atomic.Bool // followPulls is running
	failure  error       // reason for stopping the pods, if it was not the user
}

// track is the state of one followed pod.
type track struct {
	key      types.NamespacedName
	uid      types.UID
	pod      *corev1.Pod // last seen state
	settled  bool        // its start is over: it was ready, or has ended
	shown    bool        // its timeline has been drawn
	deleting bool
	gone     bool
	logs     map[string]*logTrack // by container
}

// Run follows pods until they are gone. It returns their last states in the order of Options.Pods. A pod
// that ends by itself is deleted after its logs have been shown. The error is the reason why the pods could
// not be followed to the end.
func Run(ctx context.Context, o Options) ([]*corev1.Pod, error) {
	ctx, cancel := context.WithCancel(ctx)
	group, groupCtx := errgroup.WithContext(ctx)
	s := &session{
		Options: o, ctx: groupCtx, group: group, start: o.Now(),
		byUID:    map[types.UID]*track{},
		progress: NewLines(o.Err),
		logs:     NewLines(o.Out),
		changes:  make(chan client.Change[corev1.Pod]),
		events:   make(chan *corev1.Event),
		up:       make(chan *track),
	}
	for _, p := range o.Pods {
		t := &track{key: p.Key(), uid: p.UID, logs: map[string]*logTrack{}}
		s.pods = append(s.pods, t)
		s.byUID[p.UID] = t
	}
	group.Go(s.watchPods)
	group.Go(s.watchEvents)
	err := s.loop()
	if err == nil {
		for _, t := range s.pods {
			s.drain(t.tails())
		}
	}
	cancel()
	if other := group.Wait(); err == nil {
		err = other
	}
	var last []*corev1.Pod
	for _, t := range s.pods {
		if t.pod != nil {
			last = append(last, t.pod)
		}
	}
	return last, cmp.Or(s.failure, err)
}

func (s *session) watchPods() error {
	for c, err := range s.Client.WatchPods(s.ctx, client.Select{}) {
		if err != nil {
			return err
		}
		select {
		case s.changes <- c:
		case <-s.ctx.Done():
		}
	}
	return nil
}

func (s *session) watchEvents() error {
	for c, err := range s.Client.WatchEvents(s.ctx, client.Select{Fields: "involvedObject.kind=Pod"}) {
		if err != nil {
			return err
		}
		if !c.New {
			continue // a repeated event
		}
		select {
		case s.events <- c.Object:
		case <-s.ctx.Done():
		}
	}
	return nil
}

// loop returns nil when all pods are gone, or an error if they can no longer be followed.
func (s *session) loop() error {
	var late <-chan time.Time
	if s.Timeout > 0 {
		timer := time.NewTimer(s.Timeout)
		defer timer.Stop()
		late = timer.C
	}
	for asked := 0; !s.all(func(t *track) bool { return t.gone }); {
		select {
		case c := <-s.changes:
			s.changed(c)
		case e := <-s.events:
			if t := s.byUID[e.InvolvedObject.UID]; t != nil {
				s.say(t, eventLine(e))
				if e.Reason == reason.Pulling {
					s.followPulls()
				}
			}
		case t := <-s.up:
			t.shown = true
			if s.UntilReady && s.all(func(t *track) bool { return t.shown || t.gone }) {
				s.print("all are up; stopping the pods within their grace")
				s.stop(nil)
			}
		case <-s.Interrupts:
			if asked++; asked > 2 {
				return ErrAbandoned
			}
			s.interrupted(asked)
		case <-late:
			s.late()
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	}
	return nil
}

func (s *session) all(is func(*track) bool) bool {
	for _, t := range s.pods {
		if !is(t) {
			return false
		}
	}
	return true
}

// changed processes one report of the watch.
func (s *session) changed(c client.Change[corev1.Pod]) {
	if c.Synced {
		for _, t := range s.pods {
			t.gone = t.gone || t.pod == nil // every existing pod has been reported by now
		}
		return
	}
	t := s.byUID[c.Object.UID]
	if t == nil {
		return
	}
	for _, line := range progress(t.pod, c.Object) {
		s.say(t, line)
	}
	t.pod = c.Object
	if s.Logs {
		s.followLogs(t)
	}
	if !t.settled && (ready(t.pod) || ended(t.pod)) {
		t.settled = true
		s.group.Go(func() error {
			s.drawTimeline(t.key, t.uid)
			select {
			case s.up <- t:
			case <-s.ctx.Done():
			}
			return nil
		})
	}
	switch {
	case c.Deleted:
		t.gone = true
		if !t.deleting {
			s.say(t, "was deleted")
		}
	case ended(t.pod) && !t.deleting:
		t.deleting = true
		tails := t.tails()
		s.group.Go(func() error {
			s.drain(tails)
			s.delete(t, nil)
			return nil
		})
	}
}

// say prints a line of progress about a pod.
func (s *session) say(t *track, line string) {
	if line != "" {
		s.print(fmt.Sprintf("%s: %s", s.name(t), line))
	}
}

func (s *session) print(line string) {
	w := s.progress.Prefixed(fmt.Sprintf("%8.3fs ", s.Now().Sub(s.start).Seconds()))
	_, _ = io.WriteString(w, line+"\n") // there is no other place to report the error
}

// name returns a pod's name. It includes the namespace if the pods are in several.
func (s *session) name(t *track) string {
	for _, other := range s.pods {
		if other.key.Namespace != t.key.Namespace {
			return t.key.String()
		}
	}
	return t.key.Name
}

func (s *session) interrupted(asked int) {
	if asked == 1 {
		s.print("stopping the pods within their grace; interrupt again to kill them")
		s.stop(nil)
		return
	}
	s.print("killing the pods; interrupt again to leave without waiting")
	s.stop(new(time.Duration))
}

// late stops the pods if one of them is not ready in time.
func (s *session) late() {
	for _, t := range s.pods {
		if t.settled || t.gone {
			continue
		}
		what := t.key.String()
		if t.pod != nil {
			what = unready(t.pod)
		}
		s.failure = client.Next(fmt.Errorf("not ready after %s: %s", s.Timeout, what),
			"give more time with --timeout, or see the reasons above")
		s.print(s.failure.Error() + "; stopping the pods")
		s.stop(nil)
		return
	}
}

// stop deletes all pods.
func (s *session) stop(grace *time.Duration) {
	for _, t := range s.pods {
		if !t.gone {
			t.deleting = true
			s.group.Go(func() error { s.delete(t, grace); return nil })
		}
	}
}

func (s *session) delete(t *track, grace *time.Duration) {
	_, err := s.Client.Delete(s.ctx, t.key, t.uid, grace)
	if err != nil && s.ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		s.say(t, "delete: "+err.Error())
	}
}

// drawTimeline draws the timeline of a pod's start when the record is complete.
func (s *session) drawTimeline(key types.NamespacedName, uid types.UID) {
	ctx, cancel := context.WithTimeout(s.ctx, timelineTime)
	defer cancel()
	again := time.NewTicker(timelineTime / 50)
	defer again.Stop()
	for {
		line, err := s.Client.Timeline(ctx, key)
		if err != nil {
			return // no timeline is recorded; the progress lines have shown the start
		}
		if line.UID != uid {
			return
		}
		if line.State() != timeline.StateOpen || ctx.Err() != nil {
			s.draw(line)
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			s.draw(line)
			return
		}
	}
}

func (s *session) draw(line *timeline.Timeline) {
	var picture bytes.Buffer
	if err := s.Draw(&picture, line); err != nil {
		return // it cannot fail: a buffer accepts every write
	}
	_, _ = s.progress.Prefixed("").Write(append(bytes.TrimLeft(picture.Bytes(), "\n"), '\n'))
}
