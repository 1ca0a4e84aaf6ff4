package restore

import (
	"context"
	"errors"
	"io"

	"github.com/containerd/containerd/v2/pkg/archive"

	"github.com/berth-run/berth/internal/runtime/decompress"
)

// extractLayer unpacks a layer, which may be compressed.
func extractLayer(ctx context.Context, layer io.Reader, dir string) error {
	plain, err := decompress.Stream(layer, decompress.MaxWindow)
	if err != nil {
		return err
	}
	_, err = archive.Apply(ctx, dir, plain)
	return errors.Join(err, plain.Close())
}
