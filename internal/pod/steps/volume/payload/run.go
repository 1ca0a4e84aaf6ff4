package payload

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-run/berth/internal/base/clock"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/event"
)

// writesAtOnce bounds the volumes that are written at the same time after a
// change.
const writesAtOnce = 8

// longestSleep is when the times are looked at again at the latest: a timer does not see
// that the machine's clock was set ahead, or that the machine slept.
const longestSleep = time.Minute

// Delays between tries to write a volume.
const (
	retryFirst = time.Second
	retryMax   = time.Minute
)

// Run keeps the volumes at what their objects say until ctx ends.
func (v *Volumes) Run(ctx context.Context) error {
	watch := v.cfg.Objects.Watch()
	defer watch.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	synced := v.cfg.Synced
	for {
		changed := map[object.Key]bool{}
		all := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-watch.C():
			for _, c := range watch.Changes() {
				changed[c.Key] = true
			}
		case <-synced:
			synced, all = nil, true // what is not there now is to be told
		case <-v.kick:
			v.takeChanged(changed)
		case <-timer.C:
		}
		v.refresh(ctx, func(m *mount) bool {
			return all || slices.ContainsFunc(m.uses, func(k object.Key) bool { return changed[k] })
		}, synced == nil)
		if next := v.nextDue(); !next.IsZero() {
			timer.Reset(min(max(0, time.Until(next)), longestSleep))
		}
	}
}

// takeChanged moves what Changed was told to into.
func (v *Volumes) takeChanged(into map[object.Key]bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	maps.Copy(into, v.changed)
	clear(v.changed)
}

// refresh brings the chosen volumes up to date, and those that are due.
func (v *Volumes) refresh(ctx context.Context, chosen func(*mount) bool, synced bool) {
	var list []*mount
	now := time.Now()
	v.mu.Lock()
	for _, m := range v.mounted {
		if due := !m.due.IsZero() && clock.Passed(m.due, now); due || chosen(m) {
			m.due = time.Time{}
			list = append(list, m)
		}
	}
	v.mu.Unlock()
	group := errgroup.Group{}
	group.SetLimit(writesAtOnce)
	for _, m := range list {
		group.Go(func() error {
			v.update(ctx, m, synced)
			return nil
		})
	}
	_ = group.Wait() // each has told its own trouble
}

func (v *Volumes) nextDue() (next time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, m := range v.mounted {
		if !m.due.IsZero() && (next.IsZero() || m.due.Before(next)) {
			next = m.due
		}
	}
	return next
}

// schedule has Run look at a volume at that time, if not before.
func (v *Volumes) schedule(m *mount, at time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !m.due.IsZero() && m.due.Before(at) {
		return
	}
	m.due = at
	v.look()
}

// publish makes a volume.
func (v *Volumes) publish(ctx context.Context, m *mount) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	view, content, err := v.content(ctx, m)
	if stays(err) && v.writer(m).complete() {
		m.published = true
		v.schedule(m, time.Now().Add(grace)) // to tell, if it has not come by then
		return nil
	}
	if err != nil {
		return err
	}
	inside := m.request
	inside.Volume = &corev1.Volume{Name: m.request.Volume.Name,
		VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: m.medium}}}
	if _, err := v.cfg.EmptyDir.Publish(ctx, inside); err != nil {
		return err
	}
	if err := v.makeNested(m); err != nil {
		return err
	}
	if err := v.write(ctx, m, view, content); err != nil {
		return err
	}
	m.published = true
	return nil
}

// update writes a volume anew after a change. What fails leaves the files as
// they are.
func (v *Volumes) update(ctx context.Context, m *mount, synced bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.published {
		return
	}
	view, content, err := v.content(ctx, m)
	if _, waits := object.Waits(err); waits {
		if synced && !untold(err) {
			v.tell(m, err.Error()+"; its files stay as they are")
		}
		return
	}
	if err == nil {
		err = v.write(ctx, m, view, content)
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	m.failures++
	delay := min(retryFirst<<min(m.failures-1, 10), retryMax)
	v.schedule(m, time.Now().Add(delay))
	v.tell(m, err.Error())
	v.cfg.Log.Warn("update volume", "pod", pod.FullName(m.request.Pod), "volume", m.request.Volume.Name, "err", err,
		"again in", delay)
}

// stays says that files which are there are good until err has passed.
func stays(err error) bool {
	_, waits := object.Waits(err)
	_, later := errors.AsType[*Later](err)
	return waits || later
}

// untold says that err will pass as soon as the API server is heard.
func untold(err error) bool {
	_, unknown := errors.AsType[*object.Unknown](err)
	return unknown
}

func (v *Volumes) content(ctx context.Context, m *mount) (*pinning, Content, error) {
	view := &pinning{Objects: v.cfg.Objects, pinned: m.pinned, found: map[object.Key]runtime.Object{}}
	content, err := m.source.Content(ctx, view, m.request.Pod, m.request.Volume)
	return view, content, err
}

func (v *Volumes) writer(m *mount) writer {
	return writer{path: m.target, owner: groupOf(m.request.Pod), memory: m.medium == corev1.StorageMediumMemory,
		now: time.Now()}
}

// write makes content the volume's, and notes what to look at later.
func (v *Volumes) write(ctx context.Context, m *mount, view *pinning, content Content) error {
	w := v.writer(m)
	if _, err := w.write(ctx, content.Files); err != nil {
		return err
	}
	m.pinned, m.told, m.failures = view.found, "", 0
	if !content.Until.IsZero() {
		v.schedule(m, content.Until)
	}
	if w.left {
		v.schedule(m, time.Now().Add(2*grace))
	}
	return nil
}

// makeNested makes what other volumes are mounted on.
func (v *Volumes) makeNested(m *mount) error {
	points, err := nested(m.request.Pod, m.request.Volume.Name)
	if err != nil || len(points) == 0 {
		return err
	}
	dir, err := safepath.Host(m.target)
	if err != nil {
		return err
	}
	defer dir.Close()
	for _, p := range points {
		at, err := safepath.MkdirAll(dir, p, 0o755)
		if err != nil {
			return fmt.Errorf("make the place for what is mounted in it: %w", err)
		}
		at.Close()
	}
	return nil
}

// tell records an event on the pod, once for each trouble.
func (v *Volumes) tell(m *mount, text string) {
	if m.told == text {
		return
	}
	m.told = text
	v.cfg.Events.Event(event.PodRef(m.request.Pod), corev1.EventTypeWarning, reason.FailedMount,
		"MountVolume.SetUp failed for volume %q : %s", m.request.Volume.Name, text)
}

// pinning shows the objects that a volume is made of: the table's, but the
// immutable ones that it was made of before.
type pinning struct {
	Objects
	pinned, found map[object.Key]runtime.Object
}

// ConfigMap implements Objects.
func (p *pinning) ConfigMap(namespace, name string) (*corev1.ConfigMap, error) {
	key := object.Key{Kind: object.ConfigMap, Namespace: namespace, Name: name}
	if m, ok := p.pinned[key].(*corev1.ConfigMap); ok {
		p.found[key] = m
		return m, nil
	}
	m, err := p.Objects.ConfigMap(namespace, name)
	if err == nil && m.Immutable != nil && *m.Immutable {
		p.found[key] = m
	}
	return m, err
}

// Secret implements Objects.
func (p *pinning) Secret(namespace, name string) (*corev1.Secret, error) {
	key := object.Key{Kind: object.Secret, Namespace: namespace, Name: name}
	if s, ok := p.pinned[key].(*corev1.Secret); ok {
		p.found[key] = s
		return s, nil
	}
	s, err := p.Objects.Secret(namespace, name)
	if err == nil && s.Immutable != nil && *s.Immutable {
		p.found[key] = s
	}
	return s, err
}

// IsMissing says that a getter did not find the object.
func IsMissing(err error) bool {
	_, missing := errors.AsType[*object.Missing](err)
	return missing
}
