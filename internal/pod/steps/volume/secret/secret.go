package secret

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/steps/volume/payload"
)

// Source is what is in secret volumes.
type Source struct{}

// Dir is the kubelet's.
func (Source) Dir() string { return "kubernetes.io~secret" }

// Serves says whether the volume is a secret.
func (Source) Serves(v *corev1.Volume) bool { return v.Secret != nil }

// Uses is the one Secret.
func (Source) Uses(p *corev1.Pod, v *corev1.Volume) []object.Key {
	return []object.Key{Key(p.Namespace, reference(v).Name)}
}

// Content is a file for each key, or for each item.
func (Source) Content(_ context.Context, o payload.Objects, p *corev1.Pod, v *corev1.Volume) (payload.Content, error) {
	files, err := Files(o, p.Namespace, reference(v), payload.Mode(v.Secret.DefaultMode))
	return payload.Content{Files: files}, err
}

func reference(v *corev1.Volume) payload.Reference {
	return payload.Reference{Name: v.Secret.SecretName, Items: v.Secret.Items, Optional: v.Secret.Optional}
}
