package keyvalue

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/steps/volume/payload"
)

// Source is the kind of object whose keys become files.
type Source string

// The sources.
const (
	ConfigMap Source = object.ConfigMap
	Secret    Source = object.Secret
)

// Dir is the name of the kubelet's directory for the volumes.
func (s Source) Dir() string {
	if s == Secret {
		return "kubernetes.io~secret"
	}
	return "kubernetes.io~configmap"
}

// Serves reports whether the volume is of this source.
func (s Source) Serves(v *corev1.Volume) bool {
	if s == Secret {
		return v.Secret != nil
	}
	return v.ConfigMap != nil
}

// Uses returns the key of the object that the volume names.
func (s Source) Uses(p *corev1.Pod, v *corev1.Volume) []object.Key {
	r, _ := s.reference(v)
	return []object.Key{s.Key(p.Namespace, r.Name)}
}

// Content returns the files of the volume.
func (s Source) Content(_ context.Context, o payload.Objects, p *corev1.Pod, v *corev1.Volume) (payload.Content,
	error) {
	r, mode := s.reference(v)
	files, err := s.Files(o, p.Namespace, r, payload.Mode(mode))
	return payload.Content{Files: files}, err
}

// reference returns the object that a volume names, and the volume's mode for files.
func (s Source) reference(v *corev1.Volume) (r payload.Reference, mode *int32) {
	if s == Secret {
		return payload.Reference{Name: v.Secret.SecretName, Items: v.Secret.Items, Optional: v.Secret.Optional},
			v.Secret.DefaultMode
	}
	return payload.Reference{Name: v.ConfigMap.Name, Items: v.ConfigMap.Items, Optional: v.ConfigMap.Optional},
		v.ConfigMap.DefaultMode
}
