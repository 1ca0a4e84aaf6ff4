package csi

import (
	"context"
	"errors"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/pod/steps/volume"
)

// Left is the kind of an agent without a cluster, which has no CSI drivers. It mounts nothing. It removes the volumes
// that an agent or a kubelet with a cluster has left. It calls no driver, so that it undoes only the mounts and not the
// driver's objects behind them, such as a device.
type Left struct {
	// Root is the agent's directory.
	Root string
}

// Dir is the directory of Kind.
func (Left) Dir() string { return dirName }

// Serves reports false for every volume.
func (Left) Serves(*corev1.Volume) bool { return false }

// Publish refuses every volume.
func (Left) Publish(context.Context, volume.Request) (string, error) {
	return "", errors.New("there are no CSI drivers without a cluster")
}

// StageID is empty: Left stages nothing.
func (Left) StageID(volume.Request) string { return "" }

// Stage does nothing.
func (Left) Stage(context.Context, volume.Request) error { return nil }

// Uses returns the volumes of pods that share a part, as Kind does.
func (l Left) Uses() ([]volume.Use, error) { return layout(l.Root).Uses() }

// Unpublish unmounts the volume and deletes its files.
func (l Left) Unpublish(_ context.Context, target string) error {
	at := layout(l.Root).placeOf(target)
	if err := volume.Unmount(at.path); err != nil {
		return err
	}
	return forget(at, target)
}

// Unstage unmounts the shared part and deletes its files.
func (l Left) Unstage(_ context.Context, stage string) error {
	id, err := readID(filepath.Join(filepath.Dir(stage), idFile))
	if err != nil {
		return safepath.IgnoreMissing(err)
	}
	at := layout(l.Root).paths(id)
	if err := volume.Unmount(at.staging); err != nil {
		return err
	}
	return at.remove(id)
}
