package restore

import (
	"context"
	"errors"
	"io"

	"github.com/containerd/containerd/v2/pkg/archive"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
)

// extractLayer unpacks a layer, which may be compressed.
func extractLayer(ctx context.Context, layer io.Reader, dir string) error {
	plain, err := compression.DecompressStream(layer)
	if err != nil {
		return err
	}
	_, err = archive.Apply(ctx, dir, plain)
	return errors.Join(err, plain.Close())
}
