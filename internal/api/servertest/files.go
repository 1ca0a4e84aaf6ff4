package servertest

import (
	"context"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/api/server"
	"github.com/berth-run/berth/internal/base/archive"
)

// files serves a directory as the root directory of every container.
type files struct{ root string }

func (f files) Pack(ctx context.Context, _ *corev1.Pod, _, path string, w io.Writer) error {
	root, err := os.Open(f.root)
	if err != nil {
		return err
	}
	defer root.Close()
	return archive.PackIn(ctx, root, path, w)
}

func (f files) Unpack(_ context.Context, _ *corev1.Pod, t server.FileTarget, r io.Reader) ([]string, error) {
	root, err := os.Open(f.root)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return archive.UnpackIn(root, t.Path, t.Name, nil, r)
}
