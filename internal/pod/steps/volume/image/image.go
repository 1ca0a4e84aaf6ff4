package image

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/pod/steps/volume"
)

// images pulls images according to their pull policies. Its errors carry reasons.
type images interface {
	EnsureVolume(ctx context.Context, p *corev1.Pod, v *corev1.ImageVolumeSource) (*runtimeapi.Image, error)
}

// Kind serves image volumes.
type Kind struct{ Images images }

// Dir is empty: the volume has no directory in the pod's directory.
func (Kind) Dir() string { return "" }

// Serves reports whether the volume is an image.
func (Kind) Serves(v *corev1.Volume) bool { return v.Image != nil }

// Features says that the runtime mounts the image, read-only.
func (Kind) Features(volume.Request) volume.Features {
	return volume.Features{Image: true, ReadOnly: true}
}

// Publish pulls the image and returns its id.
func (k Kind) Publish(ctx context.Context, r volume.Request) (string, error) {
	i, err := k.Images.EnsureVolume(ctx, r.Pod, r.Volume.Image)
	return i.GetId(), err
}

// Unpublish does nothing.
func (Kind) Unpublish(context.Context, string) error { return nil }
