package source

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/source/content"
	"github.com/berth-run/berth/internal/pod/source/identity"
	"github.com/berth-run/berth/internal/pod/source/manifest"
)

// Resize changes the CPU and memory of a container of a pod from any source. Resources that r does not name stay. The
// change lasts until a user edits the resources in the manifest or applies it again. The error is ErrNotFound, or says
// why the change is invalid.
func (s *Sources) Resize(ctx context.Context, key types.NamespacedName, container string,
	r corev1.ResourceRequirements) (*pod.Pod, error) {
	return s.amend(ctx, key, func(p *corev1.Pod) error { return resize(p, container, r) })
}

// AddEphemeral adds an ephemeral container to a pod. It stays for the life of the pod.
func (s *Sources) AddEphemeral(ctx context.Context, key types.NamespacedName, c corev1.EphemeralContainer) (*pod.Pod,
	error) {
	return s.amend(ctx, key, func(p *corev1.Pod) error {
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, c)
		return nil
	})
}

func (s *Sources) amend(ctx context.Context, key types.NamespacedName, change func(*corev1.Pod) error) (*pod.Pod,
	error) {
	if err := s.Local.ready(ctx); err != nil {
		return nil, err
	}
	switch p, ok := s.Local.merge.owner(key); {
	case ok && p.Source == pod.SourceAPI:
		return nil, fmt.Errorf("pod %s comes from %s, change it there: %w", key, p.Origin, ErrTaken)
	case ok && p.Source != pod.SourceLocal:
		return s.Local.merge.amend(key, change)
	}
	return s.Local.amend(key, change)
}

// amend changes a local pod, on disk first.
func (l *Local) amend(key types.NamespacedName, change func(*corev1.Pod) error) (*pod.Pod, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.pods[key]
	if was == nil {
		return nil, fmt.Errorf("pod %s: %w", key, ErrNotFound)
	}
	now := *was
	now.Pod = was.DeepCopy()
	if err := amendPod(now.Pod, change); err != nil {
		return nil, err
	}
	if !now.Ephemeral {
		if err := l.disk.Save(key.String(), record{Seen: now.Seen, Pod: now.Pod}); err != nil {
			return nil, fmt.Errorf("save pod %s: %w", key, err)
		}
	}
	l.pods[key] = &now
	l.pass(time.Now())
	return &now, nil
}

// amendPod applies change to p, a copy of a pod. It returns an error if the result is invalid.
func amendPod(p *corev1.Pod, change func(*corev1.Pod) error) error {
	was := p.DeepCopy()
	if err := change(p); err != nil {
		return err
	}
	status := p.Status
	manifest.Default(p)
	p.Status = status
	if err := manifest.Invalid(manifest.Validate(p)); err != nil {
		return reason.Wrap(reason.FailedValidation, err)
	}
	if before, after := pod.QOS(was), pod.QOS(p); before != after {
		return reason.New(reason.FailedValidation,
			"the pod would be %s and is %s: its QoS class cannot change while it runs", after, before)
	}
	return nil
}

// resize sets the CPU and memory of a container that r names.
func resize(p *corev1.Pod, container string, r corev1.ResourceRequirements) error {
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		for name := range list {
			if name != corev1.ResourceCPU && name != corev1.ResourceMemory {
				return reason.New(reason.FailedValidation,
					"%s cannot change while a container runs, only cpu and memory can", name)
			}
		}
	}
	c, ok := pod.FindContainer(p, container)
	if !ok || c.Kind == pod.Ephemeral {
		return reason.New(reason.FailedValidation, "pod %s has no container %q with resources", pod.FullName(p),
			container)
	}
	c.Resources.Requests = merged(c.Resources.Requests, r.Requests)
	c.Resources.Limits = merged(c.Resources.Limits, r.Limits)
	// The new hash differs from the manifest's, so that applying the same manifest again takes the change back.
	content.Annotate(p, pod.AnnotationConfigHash,
		content.Hash([]byte(p.Annotations[pod.AnnotationConfigHash]), identity.Resources(p)))
	return nil
}

func merged(was, now corev1.ResourceList) corev1.ResourceList {
	if len(now) == 0 {
		return was
	}
	all := maps.Clone(was)
	if all == nil {
		all = corev1.ResourceList{}
	}
	maps.Copy(all, now)
	return all
}

// amend changes a pod of a manifest. The change is on disk before it counts.
func (m *merge) amend(key types.NamespacedName, change func(*corev1.Pod) error) (*pod.Pod, error) {
	m.mu.Lock()
	origin, base := m.base(key)
	if base == nil {
		m.mu.Unlock()
		return nil, fmt.Errorf("pod %s: %w", key, ErrNotFound)
	}
	now := m.static.Identify(origin, base)
	if err := amendPod(now.Pod, change); err != nil {
		m.mu.Unlock()
		return nil, err
	}
	if err := m.static.Amend(origin, base, now); err != nil {
		m.mu.Unlock()
		return nil, fmt.Errorf("save the change of pod %s: %w", key, err)
	}
	m.replace(origin, m.origins[origin].base, time.Now())
	m.settleOrigin(origin, time.Now())
	p, ok := m.desired.Get(now.UID)
	if !ok {
		return nil, fmt.Errorf("pod %s: %w", key, ErrNotFound)
	}
	return p, nil
}

// base returns the pod of the manifest that the desired pod of this name was made from.
func (m *merge) base(key types.NamespacedName) (origin string, p *pod.Pod) {
	winner, ok := m.owner(key)
	if !ok || winner.Source == pod.SourceLocal {
		return "", nil
	}
	for _, p := range m.origins[winner.Origin].base {
		if p.Key() == key {
			return winner.Origin, p
		}
	}
	return "", nil
}
