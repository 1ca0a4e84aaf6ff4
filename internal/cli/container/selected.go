package container

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/api/containers"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/model/pod"
)

// selected follows the logs of the pods that a selector selects, including pods and instances that start later.
type selected struct {
	client *client.Client
	cmd    *cobra.Command
	flags  *logFlags
	opts   client.LogOptions
	screen *logScreen
	began  time.Time
	pods   map[types.UID]*selectedPod
	group  sync.WaitGroup
	slots  chan struct{} // has an element for each log that is followed now

	mu       sync.Mutex      // of reported and standard error
	reported map[string]bool // the errors, by text
}

// selectedPod is a pod that the selector selects now.
type selectedPod struct {
	pod  *corev1.Pod
	ctx  context.Context // ends when the pod loses the labels
	stop context.CancelFunc
	logs map[string]*containerLog // by container
}

// containerLog shows the log of a container, one instance after the other.
type containerLog struct {
	next int             // restart count of the next instance to show
	done <-chan struct{} // closed when the newest instance has been shown
}

// followSelected follows the logs of the selected pods until all of them have ended.
func followSelected(cmd *cobra.Command, c *client.Client, f *logFlags, opts client.LogOptions) error {
	s := &selected{client: c, cmd: cmd, flags: f, opts: opts, screen: newLogScreen(cmd, f), began: time.Now(),
		pods: map[types.UID]*selectedPod{}, slots: make(chan struct{}, f.most), reported: map[string]bool{}}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer s.group.Wait()
	defer cancel()
	if err := s.watch(ctx); err != nil {
		s.report(err)
	} else {
		s.group.Wait() // for the rest of the logs
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.reported) > 0 {
		return &command.ExitError{Code: 1}
	}
	return context.Cause(cmd.Context())
}

// watch starts to follow each log that appears. It returns nil when no selected pod writes more.
func (s *selected) watch(ctx context.Context) error {
	synced := false
	for c, err := range s.client.WatchPods(ctx, client.Select{Namespace: s.flags.Namespace, Labels: s.flags.selector}) {
		switch {
		case err != nil:
			return err
		case c.Synced:
			synced = true
			if err := s.begin(); err != nil {
				return err
			}
		case c.Deleted:
			s.left(ctx, c.Object)
		default:
			p := s.enter(ctx, c.Object)
			if synced {
				s.follow(p)
			}
		}
		if synced && over(s.all()) {
			return nil
		}
	}
	return nil // ctx has ended
}

// begin follows the logs of the pods that are selected at first.
func (s *selected) begin() error {
	n := 0
	for _, p := range s.all() {
		if !pod.Ended(p.Status.Phase) {
			n += len(s.flags.sources(s.cmd, []corev1.Pod{*p}))
		}
	}
	if n > s.flags.most {
		return client.Next(fmt.Errorf("cannot follow %d logs: --max-log-requests allows %d", n, s.flags.most),
			"give a higher --max-log-requests, or a narrower selector")
	}
	if len(s.pods) == 0 {
		s.say("No pods found with the labels %s in namespace %s, waiting for the first", s.flags.selector,
			s.flags.Namespace)
	}
	for _, p := range s.all() {
		s.follow(s.pods[p.UID])
	}
	return nil
}

// all returns the selected pods by name.
func (s *selected) all() []*corev1.Pod {
	var all []*corev1.Pod
	for _, p := range s.pods {
		all = append(all, p.pod)
	}
	slices.SortFunc(all, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// enter notes the state of a selected pod.
func (s *selected) enter(ctx context.Context, p *corev1.Pod) *selectedPod {
	known := s.pods[p.UID]
	if known == nil {
		known = &selectedPod{logs: map[string]*containerLog{}}
		known.ctx, known.stop = context.WithCancel(ctx)
		s.pods[p.UID] = known
	}
	known.pod = p
	return known
}

// left notes that a pod was deleted or lost the labels. The logs of a deleted pod are shown to their end.
func (s *selected) left(ctx context.Context, p *corev1.Pod) {
	known := s.enter(ctx, p)
	if delete(s.pods, p.UID); len(s.pods) == 0 {
		s.say("No pods are left with the labels %s in namespace %s, waiting for others", s.flags.selector,
			s.flags.Namespace)
	}
	if labelled, err := labels.Parse(s.flags.selector); err == nil && !labelled.Matches(labels.Set(p.Labels)) {
		known.stop()
		return
	}
	s.follow(known)
}

// follow starts to show each chosen log of a pod that is not shown yet.
func (s *selected) follow(p *selectedPod) {
	for _, src := range s.flags.sources(s.cmd, []corev1.Pod{*p.pod}) {
		if _, err := containers.Choose(p.pod, src.container); err != nil {
			s.report(err)
			continue
		}
		st := containers.Status(p.pod, src.container)
		newest, started := containers.Newest(st)
		l, opts := p.logs[src.container], whole(s.opts)
		if l == nil {
			l = &containerLog{next: newest}
			if !started || startedSince(st, s.began) {
				l.next = 0
			} else {
				opts = s.opts
			}
			p.logs[src.container] = l
		}
		for ; started && l.next <= newest; l.next++ {
			opts.Container, opts.Instance = src.container, new(l.next)
			s.show(p, l, opts)
		}
	}
}

// show follows the log of an instance when the ones before it have been shown.
func (s *selected) show(p *selectedPod, l *containerLog, opts client.LogOptions) {
	before, done := l.done, make(chan struct{})
	l.done = done
	key := types.NamespacedName{Namespace: p.pod.Namespace, Name: p.pod.Name}
	out := s.screen.writer(source{p.pod, opts.Container})
	s.group.Go(func() {
		defer close(done)
		if before != nil {
			<-before
		}
		if !s.slot(p.ctx, key.Name+"/"+opts.Container) {
			return
		}
		defer func() { <-s.slots }()
		err := copyLog(p.ctx, s.client, key, opts, out)
		if err != nil && p.ctx.Err() == nil && !apierrors.IsNotFound(err) { // not found: the pod is gone
			s.report(err)
		}
	})
}

// slot waits until another log may be followed. It returns false if the pod is no longer selected.
func (s *selected) slot(ctx context.Context, name string) bool {
	select {
	case s.slots <- struct{}{}:
		return true
	default:
	}
	s.say("warning: the log of %s waits until another one ends: --max-log-requests allows %d", name, s.flags.most)
	select {
	case s.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// say prints a line on standard error.
func (s *selected) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.cmd.ErrOrStderr(), format+"\n", args...)
}

// report prints an error, unless it has printed the same one before: when the agent ends, it ends every log.
func (s *selected) report(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.reported[err.Error()] {
		s.reported[err.Error()] = true
		command.PrintError(s.cmd.ErrOrStderr(), s.cmd, err)
	}
}
