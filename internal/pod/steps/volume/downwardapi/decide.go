package downwardapi

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/steps/volume/payload"
)

// Files returns a file for each item. mode is for items without one. allocatable stands in for the limits that a
// container does not have.
func Files(p *corev1.Pod, items []corev1.DownwardAPIVolumeFile, mode int32,
	allocatable corev1.ResourceList) (payload.Files, error) {
	files := payload.Files{}
	var errs []error
	for _, item := range items {
		value, err := valueOf(p, item, allocatable)
		if err != nil {
			errs = append(errs, fmt.Errorf("file %q: %w", item.Path, err))
			continue
		}
		files[item.Path] = payload.File{Data: []byte(value), Mode: payload.Mode(item.Mode, &mode)}
	}
	return files, errors.Join(errs...)
}

func valueOf(p *corev1.Pod, item corev1.DownwardAPIVolumeFile, allocatable corev1.ResourceList) (string, error) {
	switch {
	case item.FieldRef != nil:
		return pod.Field(p, item.FieldRef.FieldPath)
	case item.ResourceFieldRef == nil:
		return "", errors.New("the item has neither fieldRef nor resourceFieldRef")
	case item.ResourceFieldRef.ContainerName == "":
		return "", errors.New("resourceFieldRef names no container")
	}
	return pod.ResourceField(p, pod.Container{}, item.ResourceFieldRef, allocatable)
}
