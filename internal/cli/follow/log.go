package follow

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/api/containers"
	"github.com/berth-run/berth/internal/model/pod"
)

// logTrack follows one container's log, one instance after the other.
type logTrack struct {
	next int           // restart count of the next instance to show
	done chan struct{} // closed when the log of the newest instance has been shown
}

// followLogs shows the log of every new container instance. It includes instances that came and went
// between two reports of the watch.
func (s *session) followLogs(t *track) {
	for _, c := range pod.Containers(t.pod) {
		newest, started := containers.Newest(containers.Status(t.pod, c.Name))
		if !started {
			continue
		}
		l := t.logs[c.Name]
		if l == nil {
			l = &logTrack{done: make(chan struct{})}
			close(l.done)
			t.logs[c.Name] = l
		}
		for ; l.next <= newest; l.next++ {
			s.followInstance(t, l, c.Name, l.next)
		}
	}
}

func (s *session) followInstance(t *track, l *logTrack, container string, n int) {
	before, done := l.done, make(chan struct{})
	l.done = done
	s.group.Go(func() error {
		defer close(done)
		select {
		case <-before:
			s.copyLog(t, container, n)
		case <-s.ctx.Done():
		}
		return nil
	})
}

// copyLog shows the log of the n-th instance of a container until that instance ends.
func (s *session) copyLog(t *track, container string, n int) {
	prefix := container
	if len(s.pods) > 1 {
		prefix = s.pods.name(t) + "/" + container
	}
	lines := s.screen.logs.Prefixed(prefix + " | ")
	opts := client.LogOptions{PodLogOptions: corev1.PodLogOptions{Container: container, Follow: true}, Instance: &n}
	err := s.Client.Pod(t.key).Logs(s.ctx, opts, lines)
	_ = lines.Close() // there is no other place to report the error
	if err != nil && s.ctx.Err() == nil && !apierrors.IsBadRequest(err) && !apierrors.IsNotFound(err) {
		s.say(t, "log of "+container+" ended early: "+err.Error())
	}
}

// tails returns channels that close when the logs followed so far have been shown.
func (t *track) tails() []<-chan struct{} {
	var all []<-chan struct{}
	for _, l := range t.logs {
		all = append(all, l.done)
	}
	return all
}

// drain waits for tails, for at most drainTime.
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
