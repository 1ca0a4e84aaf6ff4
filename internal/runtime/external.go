package runtime

import (
	"context"
	"fmt"
	"io"
	"strings"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
)

// ImportInto loads an image archive into a containerd of its own process, at
// endpoint unix:///path, for its CRI. The CRI itself has no call for that: for
// another runtime than containerd it fails.
func ImportInto(ctx context.Context, endpoint string, content io.Reader) ([]Image, error) {
	client, err := containerd.New(strings.TrimPrefix(endpoint, "unix://"), containerd.WithDefaultNamespace(criNamespace))
	if err != nil {
		return nil, fmt.Errorf("import images into the runtime at %s: only containerd can take archives: %w", endpoint, err)
	}
	defer client.Close()
	plain, err := compression.DecompressStream(content)
	if err != nil {
		return nil, fmt.Errorf("import images: %w", err)
	}
	defer plain.Close()
	records, err := client.Import(ctx, plain,
		containerd.WithImageRefTranslator(fullName),
		containerd.WithDigestRef(archive.DigestTranslator("localhost/imported")),
		containerd.WithSkipDigestRef(func(name string) bool { return name != "" }))
	if err != nil {
		return nil, fmt.Errorf("import images into the runtime at %s: %w", endpoint, err)
	}
	imported := make([]Image, 0, len(records))
	for _, record := range records {
		image := containerd.NewImage(client, record)
		if err := image.Unpack(ctx, ""); err != nil {
			return nil, fmt.Errorf("unpack %s: %w", record.Name, err)
		}
		imported = append(imported, Image{Name: record.Name, Digest: record.Target.Digest.String()})
	}
	return imported, nil
}
