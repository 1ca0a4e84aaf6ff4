package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/logfile"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/plan"
	"github.com/berth-run/berth/internal/pod/steps/container/handler"
	"github.com/berth-run/berth/internal/pod/steps/container/render"
	"github.com/berth-run/berth/internal/record/event"
	"github.com/berth-run/berth/internal/record/podlog"
	"github.com/berth-run/berth/internal/record/timeline"
)

// launch is one start of one container.
type launch struct {
	s        *Containers
	pod      *corev1.Pod
	observed *pod.Observed
	want     plan.Start
	replaces []string // ids of dead instances to remove first

	sandboxID string
	sandbox   *runtimeapi.PodSandboxConfig
	ips       []string      // of the pod
	grace     time.Duration // of the pod

	turns []<-chan struct{} // closed when this container may be created
	open  func()            // lets the next container be created; may be called again
	leave func()            // returns the place in the node's limit; may be called again

	image  *runtimeapi.Image
	config *runtimeapi.ContainerConfig
	id     string
	ended  bool // the container was removed or killed because its start failed
}

// piece is one part of a start. reason is the reason of its failures, unless the error has one already.
type piece struct {
	name   string
	kind   timeline.Kind
	reason string
	do     func(context.Context) error
}

// pieces returns the life of one container start, in order. The plan has applied the crash delay before.
func (l *launch) pieces() []piece {
	pieces := []piece{
		{"its image", timeline.KindWait, reason.ErrImagePull, l.pull},
		{"its turn", timeline.KindWait, reason.CreateContainerError, l.awaitTurn},
		{"render", timeline.KindStep, reason.CreateContainerConfigError, l.render},
		{"PreCreate", timeline.KindStep, reason.PreCreateHookError, l.preCreate},
		{"create", timeline.KindStep, reason.CreateContainerError, l.create},
		{"PreStart", timeline.KindStep, reason.PreStartHookError, l.preStart},
		{"start", timeline.KindStep, reason.RunContainerError, l.start},
		{"log link", timeline.KindStep, "", l.linkLog},
	}
	if l.hasPostStart() {
		pieces = append(pieces, piece{"postStart", timeline.KindStep, reason.PostStartHookError, l.postStart})
	}
	return pieces
}

// run executes the pieces in order. When it returns, the observed state shows the result.
func (l *launch) run(ctx context.Context) (err error) {
	ctx, span := timeline.Start(ctx, "container "+l.want.Name)
	defer func() { timeline.End(span, err) }()
	defer l.open()
	l.leave = func() {}
	defer func() { l.leave() }()
	l.starting(true)
	defer l.starting(false)
	for _, p := range l.pieces() {
		if err = ctx.Err(); err == nil {
			err = l.do(ctx, p)
		}
		if err != nil {
			break
		}
	}
	l.recordResult(ctx, err)
	if l.id == "" {
		return err
	}
	return errors.Join(err, l.s.changed(ctx, l.pod.UID, l.want.Name, l.effect(err)))
}

func (l *launch) do(ctx context.Context, p piece) (err error) {
	ctx, span := timeline.Start(ctx, p.name, p.kind.Attr())
	defer func() { timeline.End(span, err) }()
	if err = p.do(ctx); err != nil && ctx.Err() == nil && reason.Of(err) == "" {
		err = reason.Wrap(p.reason, err)
	}
	return err
}

// recordResult reports a failure to users, or clears the last one after a success. An interrupted start is neither. A
// start that waits for an answer of the API server is no failure: the status shows it, and no event.
func (l *launch) recordResult(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	l.s.with(l.pod.UID, func(life *life) {
		if err == nil {
			delete(life.failed, l.want.Name)
		} else {
			life.failed[l.want.Name] = err
		}
	})
	if object.Unanswered(err) {
		return
	}
	l.s.metrics.count(l.pod, l.want.Name, err)
	if err != nil {
		why, text := failureEvent(reason.Of(err), reason.Message(err), l.id, l.want.Name)
		l.event(corev1.EventTypeWarning, why, text)
	}
}

// effect returns the state that the runtime is known to show after the start.
func (l *launch) effect(err error) effect {
	e := effect{id: l.id, state: pod.StateCreated}
	switch {
	case l.ended:
		e.state = pod.StateExited
	case err == nil:
		e.state = pod.StateRunning
	}
	return e
}

func (l *launch) event(kind, why, text string) {
	l.s.opts.Events.Event(event.ContainerRef(l.pod, l.want.Container), kind, why, "%s", text)
}

func (l *launch) hasPostStart() bool {
	return l.want.Lifecycle != nil && l.want.Lifecycle.PostStart != nil
}

func (l *launch) starting(yes bool) {
	l.s.with(l.pod.UID, func(life *life) { life.starting[l.want.Name] = yes && l.hasPostStart() })
}

func (l *launch) pull(ctx context.Context) (err error) {
	l.image, err = l.s.opts.Images.Ensure(ctx, l.pod, l.want.Container)
	return err
}

func (l *launch) awaitTurn(ctx context.Context) error {
	for _, before := range l.turns {
		select {
		case <-before:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// node returns the properties of the node and of the pod's runtime handler. The node's addresses may change.
func (l *launch) node() render.Node {
	n := l.s.opts.Node
	n.HostIPs = l.s.opts.Addresses.HostIPs()
	if h := l.s.opts.Handlers; h != nil {
		n.RecursiveReadOnly = h.RecursiveReadOnly(l.pod)
	}
	return n
}

// render makes the configuration, and the files and directories that it refers to.
func (l *launch) render(ctx context.Context) error {
	s, c := l.s, l.want.Container
	count, err := l.restartCount()
	if err != nil {
		return err
	}
	in := render.Input{
		Pod: l.pod, QOS: pod.QOS(l.pod), Container: c, RestartCount: count, Backoff: l.want.Backoff,
		Image: l.image, PodIPs: l.ips, Node: l.node(),
		Userns: l.sandbox.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions(),
	}
	if c.Target != "" {
		target, ok := l.observed.Container(c.Target)
		if !ok {
			return fmt.Errorf("unable to find target container %s", c.Target)
		}
		in.TargetID = target.ID
	}
	in.Mounted = s.opts.Volumes.Mounted(l.pod.UID)
	if in.Sources, err = l.sources(in.Mounted); err != nil {
		return err
	}
	if in.Volumes, err = l.volumes(ctx, in); err != nil {
		return err
	}
	if render.WantsHosts(l.pod, c, l.ips) {
		if in.HostsFile, err = s.opts.Dirs.Hosts(l.pod, l.ips); err != nil {
			return err
		}
	}
	if c.TerminationMessagePath != "" {
		if in.TerminationLog, err = s.opts.Dirs.TerminationLog(l.pod, c.Name, count); err != nil {
			return err
		}
	}
	if err := logfile.MkdirAll(l.logDir(), logfile.Depth-1); err != nil {
		return fmt.Errorf("make log directory: %w", err)
	}
	if l.config, err = render.Config(in); err == nil {
		l.reportSkipped(in)
	}
	return err
}

func (l *launch) logDir() string { return filepath.Join(l.sandbox.GetLogDirectory(), l.want.Name) }

// restartCount returns the plan's restart count. If the runtime knows no instance, it looks at the logs: some runtimes
// lose their containers in a reboot.
func (l *launch) restartCount() (int, error) {
	if _, known := l.observed.Container(l.want.Name); known || l.want.RestartCount > 0 {
		return l.want.RestartCount, nil
	}
	last, found, err := podlog.LastInstance(l.logDir())
	if err != nil || !found {
		return 0, err
	}
	return last + 1, nil
}

// unusedLog returns the path of the log of a container that was created and never started, or "". The log is not always
// empty: a runc that was killed with its agent leaves an error there.
func unusedLog(o *pod.Observed, id string) string {
	for _, c := range o.ContainersOf() {
		info, err := os.Lstat(c.LogPath)
		if c.ID == id && c.State == pod.StateCreated && err == nil && info.Mode().IsRegular() {
			return c.LogPath
		}
	}
	return ""
}

// dropLog removes the log of a container that never ran. The container is removed after its log: if this agent were
// killed between the two in the other order, the next agent would take the log for an earlier instance's.
func (l *launch) dropLog(path string) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.s.opts.Log.Warn("cannot remove the log of a container that never ran", "pod", pod.FullName(l.pod),
			"container", l.want.Name, "err", err)
	}
}

// volumes returns the host path of each of the container's volumeMounts.
func (l *launch) volumes(ctx context.Context, in render.Input) ([]string, error) {
	subPaths, err := render.SubPaths(in)
	if err != nil {
		return nil, err
	}
	paths := make([]string, len(subPaths))
	for i, subPath := range subPaths {
		if paths[i], err = l.s.opts.Volumes.MountPath(ctx, l.pod, l.want.Name, i, subPath); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// preCreate runs PreCreate, after PostStop of the previous instance.
func (l *launch) preCreate(ctx context.Context) error {
	for _, c := range unreleased(l.s, l.pod.UID, l.observed) {
		if c.Name == l.want.Name {
			postStop(ctx, l.s, l.pod, c.Name, c.ID)
		}
	}
	for _, lifecycle := range l.s.opts.Lifecycle {
		if lifecycle.PreCreate == nil {
			continue
		}
		if err := lifecycle.PreCreate(ctx, l.pod, l.want.Container, l.config); err != nil {
			return err
		}
	}
	return nil
}

func (l *launch) create(ctx context.Context) error {
	done := timeline.Wait(ctx, "a free place to start in")
	leave, err := l.s.opts.Limit.Enter(ctx, l.pod)
	done()
	if err != nil {
		return err
	}
	l.leave = leave
	for _, id := range l.replaces {
		l.dropLog(unusedLog(l.observed, id))
		if err := l.s.removeOne(ctx, l.pod, l.want.Name, id); err != nil {
			return err
		}
	}
	call, cancel := settled(ctx)
	defer cancel()
	resp, err := l.s.opts.Runtime.CreateContainer(call, &runtimeapi.CreateContainerRequest{
		PodSandboxId: l.sandboxID, Config: l.config, SandboxConfig: l.sandbox,
	})
	if err != nil {
		// The runtime may have created it all the same: the next attempt must see that.
		return errors.Join(err, l.s.opts.Observer.Refresh(call, l.pod.UID))
	}
	l.id = resp.ContainerId
	if !l.hasPostStart() {
		l.open()
	}
	return nil
}

func (l *launch) preStart(ctx context.Context) error {
	for _, lifecycle := range l.s.opts.Lifecycle {
		if lifecycle.PreStart == nil {
			continue
		}
		if err := lifecycle.PreStart(ctx, l.pod, l.want.Container, l.id); err != nil {
			if ctx.Err() != nil {
				return err
			}
			return errors.Join(err, l.forget(ctx))
		}
	}
	l.event(corev1.EventTypeNormal, reason.Created, "Container created")
	return nil
}

func (l *launch) start(ctx context.Context) error {
	defer l.s.opts.Observer.Starting(l.id)()
	call, cancel := settled(ctx)
	defer cancel()
	_, err := l.s.opts.Runtime.StartContainer(call, &runtimeapi.StartContainerRequest{ContainerId: l.id})
	l.leave()
	if err == nil {
		l.event(corev1.EventTypeNormal, reason.Started, "Container started")
	} else if cri.NeverStarted(err) && cri.SandboxEnded(call, l.s.opts.Runtime, l.sandboxID) {
		err = errors.Join(fmt.Errorf("the pod's sandbox ended meanwhile: %w", err), l.forget(ctx))
	}
	return err
}

// forget removes a container that was created and never ran. Left behind it would count as a failure of the container.
func (l *launch) forget(ctx context.Context) error {
	l.dropLog(filepath.Join(l.sandbox.GetLogDirectory(), l.config.LogPath))
	err := l.s.removeOne(ctx, l.pod, l.want.Name, l.id)
	l.ended = err == nil
	return err
}

// linkLog makes the link to the log for older log collectors. A failure does not affect the container.
func (l *launch) linkLog(context.Context) error {
	link := l.s.logLink(l.pod, l.want.Name, l.id)
	if link == "" {
		return nil
	}
	log := filepath.Join(l.sandbox.GetLogDirectory(), l.config.LogPath)
	_, err := os.Lstat(log)
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(log, link))
	}
	// A runtime that logs elsewhere has no file to link to.
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.s.opts.Log.Warn("cannot link the container's log for log collectors", "pod", pod.FullName(l.pod), "container",
			l.want.Name, "err", err)
	}
	return nil
}

// logLink returns the path of the link to a container's log, or "" if there shall be none.
func (s *Containers) logLink(p *corev1.Pod, name, id string) string {
	if s.opts.LegacyLogDir == "" {
		return ""
	}
	return podlog.LegacyLink(s.opts.LegacyLogDir, p.Namespace, p.Name, name, id)
}

func (s *Containers) unlinkLog(p *corev1.Pod, name, id string) {
	link := s.logLink(p, name, id)
	if link == "" {
		return
	}
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.opts.Log.Warn("cannot remove the link to the container's log", "pod", pod.FullName(p), "container", name,
			"err", err)
	}
}

// postStartLimit is how long a postStart handler may run. Kubernetes has no limit. This one ends a handler, or a
// runtime, that hangs for ever.
const postStartLimit = time.Hour

// postStart runs the container's postStart handler, and stops the container if the handler fails.
func (l *launch) postStart(ctx context.Context) error {
	// The handler may run for long: users should see the running container meanwhile.
	if err := l.s.changed(ctx, l.pod.UID, l.want.Name, l.effect(nil)); err != nil {
		l.s.opts.Log.Warn("cannot read the state of a started container, running its postStart handler", "pod",
			pod.FullName(l.pod), "err", err)
	}
	t := handler.Target{Pod: l.pod, Container: l.want.Container, ID: l.id, IPs: l.ips, Timeout: postStartLimit}
	limited, cancel := context.WithTimeoutCause(ctx, postStartLimit,
		fmt.Errorf("it did not end within %v", postStartLimit))
	defer cancel()
	err := l.s.handlers.Run(limited, t, "handler", l.want.Lifecycle.PostStart)
	if err == nil || ctx.Err() != nil {
		return err
	}
	v := &victim{ending: l.s.endingOf(l.pod.UID, l.id), pod: l.pod, c: l.want.Container, id: l.id, ips: l.ips,
		why: reason.FailedPostStartHook}
	v.shorten(time.Now().Add(l.grace))
	left := l.s.stop(ctx, v)
	l.ended = left == nil
	return errors.Join(err, left)
}
