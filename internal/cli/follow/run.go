package follow

import (
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
	// UntilReady stops the pods when all of them have been ready or have ended. It asks whether they come up,
	// so how they end after that is not in the exit status. It also stops them when one of them cannot come up.
	UntilReady bool
	// Interrupts delivers the user's interrupts. The first stops the pods within their grace period, the
	// second kills them, and the third returns without waiting.
	Interrupts <-chan os.Signal
	// Out receives the logs, Err the progress.
	Out, Err io.Writer
	// Width is the number of columns for the timelines of pods' starts, Color whether they have colors.
	Width int
	Color bool
	Now   func() time.Time
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
	ctx     context.Context
	group   *errgroup.Group
	screen  screen
	pods    tracks
	changes chan client.Change[corev1.Pod]
	events  chan *corev1.Event
	up      chan *track // pods whose start is complete and drawn
	pulling atomic.Bool // followPulls is running
	failure error       // reason for stopping the pods, if it was not the user
}

// Run follows pods until they are gone. It returns the exit status of the command that follows them. A pod
// that ends by itself is deleted after its logs have been shown. A pod that was stopped because all were
// ready does not count in the exit status, whatever the signal did to its containers. The error is the reason
// why the pods could not be followed to the end.
func Run(ctx context.Context, o Options) (status int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	group, groupCtx := errgroup.WithContext(ctx)
	s := &session{
		Options: o, ctx: groupCtx, group: group,
		screen:  screen{logs: NewLines(o.Out), progress: NewLines(o.Err), start: o.Now(), now: o.Now},
		changes: make(chan client.Change[corev1.Pod]),
		events:  make(chan *corev1.Event),
		up:      make(chan *track),
	}
	for _, p := range o.Pods {
		s.pods = append(s.pods, &track{key: p.Key(), uid: p.UID, logs: map[string]*logTrack{}})
	}
	group.Go(s.watchPods)
	group.Go(s.watchEvents)
	err = s.loop()
	if err == nil {
		for _, t := range s.pods {
			s.drain(t.tails())
		}
	}
	cancel()
	if other := group.Wait(); err == nil {
		err = other
	}
	return s.pods.exitStatus(), cmp.Or(s.failure, err)
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
	for interrupts := 0; !s.pods.all(func(t *track) bool { return t.gone }); {
		select {
		case c := <-s.changes:
			s.changed(c)
		case e := <-s.events:
			if t := s.pods.find(e.InvolvedObject.UID); t != nil {
				s.say(t, eventLine(e, t.ending()))
				if e.Reason == reason.Pulling {
					s.followPulls()
				}
			}
		case t := <-s.up:
			t.shown = true
			if s.UntilReady && s.pods.all(func(t *track) bool { return t.shown || t.gone }) {
				s.screen.print("all are up; stopping the pods within their grace")
				s.pods.complete()
				s.stop(nil)
			}
		case <-s.Interrupts:
			if interrupts++; interrupts > 2 {
				return ErrAbandoned
			}
			s.interrupted(interrupts)
		case <-late:
			s.late()
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	}
	return nil
}

// changed processes one report of the watch.
func (s *session) changed(c client.Change[corev1.Pod]) {
	if c.Synced {
		for _, t := range s.pods {
			t.gone = t.gone || t.pod == nil // every existing pod has been reported by now
		}
		return
	}
	t := s.pods.find(c.Object.UID)
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
	if why, next := stuck(t.pod); s.UntilReady && why != "" && !t.settled && !t.ending() {
		s.fail(client.Next(fmt.Errorf("%s cannot become ready: %s", t.key, why), next))
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
		s.screen.print(fmt.Sprintf("%s: %s", s.pods.name(t), line))
	}
}

func (s *session) interrupted(interrupts int) {
	if interrupts == 1 {
		s.screen.print("stopping the pods within their grace; interrupt again to kill them")
		s.stop(nil)
		return
	}
	s.screen.print("killing the pods; interrupt again to leave without waiting")
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
		s.fail(client.Next(fmt.Errorf("not ready after %s: %s", s.Timeout, what),
			"give more time with --timeout, or see the reasons above"))
		return
	}
}

// fail stops all pods because of an error, which Run returns.
func (s *session) fail(err error) {
	if s.failure != nil {
		return // the pods are ending already
	}
	s.failure = err
	s.screen.print(err.Error() + "; stopping the pods")
	s.stop(nil)
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
	_, err := s.Client.Pod(t.key).Delete(s.ctx, t.uid, grace)
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
		line, err := s.Client.Pod(key).Timeline(ctx)
		if err != nil {
			return // no timeline is recorded; the progress lines have shown the start
		}
		if line.UID != uid {
			return
		}
		if line.State() != timeline.StateOpen || ctx.Err() != nil {
			s.screen.draw(line, s.Width, s.Color)
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			s.screen.draw(line, s.Width, s.Color)
			return
		}
	}
}
