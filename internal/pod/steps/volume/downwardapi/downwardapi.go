package downwardapi

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/steps/volume/payload"
)

// Source is what is in downwardAPI volumes.
type Source struct {
	// Allocatable is what all pods of the node may have.
	Allocatable corev1.ResourceList
}

// Dir is the kubelet's.
func (Source) Dir() string { return "kubernetes.io~downward-api" }

// Serves says whether the volume is a downwardAPI.
func (Source) Serves(v *corev1.Volume) bool { return v.DownwardAPI != nil }

// Uses no object.
func (Source) Uses(*corev1.Pod, *corev1.Volume) []object.Key { return nil }

// Content is a file for each item.
func (s Source) Content(_ context.Context, _ payload.Objects, p *corev1.Pod, v *corev1.Volume) (payload.Content,
	error) {
	files, err := Files(p, v.DownwardAPI.Items, payload.Mode(v.DownwardAPI.DefaultMode), s.Allocatable)
	return payload.Content{Files: files}, err
}
