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
	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/event"
)

// writesAtOnce bounds how many volumes are written at the same time after a change.
const writesAtOnce = 8

// longestSleep bounds the sleep until a volume is due: a timer does not notice that the machine's clock was set ahead
// or that the machine was suspended.
const longestSleep = time.Minute

// Delays between tries to write a volume. The delay doubles from retryFirst to retryMax.
const (
	retryFirst = time.Second
	retryMax   = time.Minute
)

// Run updates the volumes when their objects change, until ctx ends.
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
			synced, all = nil, true // objects that are missing now are reported
		case <-v.due.C():
			v.moveChanged(changed)
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

// moveChanged moves the keys that Changed was called with to into.
func (v *Volumes) moveChanged(into map[object.Key]bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	maps.Copy(into, v.changed)
	clear(v.changed)
}

// refresh updates the chosen volumes and those that are due.
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
	_ = group.Wait() // update reports its errors itself
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

// schedule makes Run update a volume at the given time at the latest.
func (v *Volumes) schedule(m *mount, at time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !m.due.IsZero() && m.due.Before(at) {
		return
	}
	m.due = at
	v.due.Wake()
}

// publish makes a volume.
func (v *Volumes) publish(ctx context.Context, m *mount) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	view, content, err := v.content(ctx, m)
	if keepsFiles(err) && v.writer(m).complete() {
		m.published = true
		v.schedule(m, time.Now().Add(grace)) // to report err if it persists
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

// update writes a volume again after a change. If it fails, the files stay as they are.
func (v *Volumes) update(ctx context.Context, m *mount, synced bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.published {
		return
	}
	view, content, err := v.content(ctx, m)
	if _, waits := object.Waits(err); waits {
		if synced && !isUnknown(err) {
			v.report(m, err.Error()+"; its files stay as they are")
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
	delay := retry.Delay(retryFirst, retryMax, m.failures)
	v.schedule(m, time.Now().Add(delay))
	v.report(m, err.Error())
	v.cfg.Log.Warn("cannot update volume, retrying", "pod", pod.FullName(m.request.Pod), "volume",
		m.request.Volume.Name,
		"err", err, "in", delay)
}

// keepsFiles reports whether existing files stay in use after err.
func keepsFiles(err error) bool {
	_, waits := object.Waits(err)
	_, unavailable := errors.AsType[*Unavailable](err)
	return waits || unavailable
}

// isUnknown reports whether err ends as soon as the API server answers.
func isUnknown(err error) bool {
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

// write writes content into the volume and schedules the next update.
func (v *Volumes) write(ctx context.Context, m *mount, view *pinning, content Content) error {
	w := v.writer(m)
	if _, err := w.write(ctx, content.Files); err != nil {
		return err
	}
	m.pinned, m.reported, m.failures = view.found, "", 0
	if !content.Until.IsZero() {
		v.schedule(m, content.Until)
	}
	if w.moreStale {
		v.schedule(m, time.Now().Add(2*grace))
	}
	return nil
}

// makeNested makes the directories in the volume that are mount points of other volumes.
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
			return fmt.Errorf("make a mount point in the volume: %w", err)
		}
		at.Close()
	}
	return nil
}

// report writes an event for the pod, unless the last one had the same text.
func (v *Volumes) report(m *mount, text string) {
	if m.reported == text {
		return
	}
	m.reported = text
	v.cfg.Events.Event(event.PodRef(m.request.Pod), corev1.EventTypeWarning, reason.FailedMount,
		"MountVolume.SetUp failed for volume %q : %s", m.request.Volume.Name, text)
}

// pinning is Objects for one volume: the table's objects, except for the immutable ones that the volume was made of
// before.
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

// IsMissing reports whether an error says that an object does not exist.
func IsMissing(err error) bool {
	_, missing := errors.AsType[*object.Missing](err)
	return missing
}
