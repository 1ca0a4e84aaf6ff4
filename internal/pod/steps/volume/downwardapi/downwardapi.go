package downwardapi

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/steps/volume/payload"
)

// Source decides the content of downwardAPI volumes.
type Source struct {
	// Allocatable are the resources that pods may have on this node.
	Allocatable corev1.ResourceList
}

// Dir is the name of the kubelet's directory for these volumes.
func (Source) Dir() string { return "kubernetes.io~downward-api" }

// Serves reports whether the volume is a downwardAPI volume.
func (Source) Serves(v *corev1.Volume) bool { return v.DownwardAPI != nil }

// Uses returns no object.
func (Source) Uses(*corev1.Pod, *corev1.Volume) []object.Key { return nil }

// Content returns a file for each item.
func (s Source) Content(_ context.Context, _ payload.Objects, p *corev1.Pod, v *corev1.Volume) (payload.Content,
	error) {
	files, err := Files(p, v.DownwardAPI.Items, payload.Mode(v.DownwardAPI.DefaultMode), s.Allocatable)
	return payload.Content{Files: files}, err
}
