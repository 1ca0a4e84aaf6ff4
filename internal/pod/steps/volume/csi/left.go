package csi

import (
	"context"
	"errors"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/pod/steps/volume"
)

// Left is the kind of an agent that has no drivers, as it has no cluster: it mounts
// nothing, and takes away what is left of an agent or a kubelet that had one. The
// drivers are not asked, so that only the mounts are undone and not what is behind
// them.
type Left struct {
	// Root is the agent's directory.
	Root string
}

// Dir is that of Kind.
func (Left) Dir() string { return dirName }

// Serves is for no volume.
func (Left) Serves(*corev1.Volume) bool { return false }

// Publish is for no volume either.
func (Left) Publish(context.Context, volume.Request) (string, error) {
	return "", errors.New("there are no CSI drivers without a cluster")
}

// StageID names what Kind would.
func (Left) StageID(volume.Request) string { return "" }

// Stage is for no volume.
func (Left) Stage(context.Context, volume.Request) error { return nil }

// Uses are those of Kind.
func (l Left) Uses() ([]volume.Use, error) { return l.kind().Uses() }

// Unpublish unmounts what is mounted there and forgets it.
func (l Left) Unpublish(_ context.Context, target string) error {
	k := l.kind()
	at := k.placeOf(target)
	if err := volume.Unmount(at.path); err != nil {
		return err
	}
	return forget(at, target)
}

// Unstage does so with what pods share.
func (l Left) Unstage(_ context.Context, stage string) error {
	id, err := readID(filepath.Join(filepath.Dir(stage), idFile))
	if err != nil {
		return ignoreMissing(err)
	}
	at := l.kind().paths(id)
	if err := volume.Unmount(at.staging); err != nil {
		return err
	}
	return at.remove(id)
}

func (l Left) kind() *Kind { return New(Options{Root: l.Root}) }
