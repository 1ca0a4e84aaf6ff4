package unpack

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/typeurl/v2"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/runtime/decompress"
)

// Limits bound how much disk space a compressed layer may use once it is unpacked. A manifest states only the
// compressed size of a layer, and a small layer can unpack to any size.
type Limits struct {
	// MaxRatio is the largest allowed ratio of unpacked to compressed size, for layers larger than Harmless. Default
	// 500: real files compress far less, only data such as zeros compresses more (gzip: 1030).
	MaxRatio int64
	// Harmless is an unpacked size in bytes. MaxRatio does not apply to layers of up to this size. Default 1 GiB.
	Harmless int64
	// Reserve is how many bytes of the file system under root stay free. Default 5 % of it, at most 1 GiB. 5 % of its
	// inodes stay free, too.
	Reserve int64
}

func (l Limits) withDefaults() Limits {
	if l.MaxRatio == 0 {
		l.MaxRatio = 500
	}
	if l.Harmless == 0 {
		l.Harmless = 1 << 30
	}
	return l
}

// Register limits the unpacking of all layers in this process. root is a directory on the file system that holds the
// unpacked layers. containerd's list of stream processors is global to the process, which runs only one runtime.
func Register(limits Limits, root string) {
	limits = limits.withDefaults()
	diff.RegisterProcessor(func(ctx context.Context, mediaType string) (diff.StreamProcessorInit, bool) {
		compressed, err := images.DiffCompression(ctx, mediaType)
		if err != nil {
			return nil, false
		}
		return func(_ context.Context, stream diff.StreamProcessor, _ map[string]typeurl.Any) (diff.StreamProcessor,
			error) {
			in := &countedInput{Reader: stream}
			free := func() (space, error) { return freeSpace(root) }
			if compressed == "" {
				return bounded(in, io.NopCloser(in), limits, free), nil
			}
			plain, err := decompress.Stream(in, decompress.MaxWindow)
			if err != nil {
				return nil, err
			}
			return bounded(in, plain, limits, free), nil
		}, true
	})
}

type countedInput struct {
	io.Reader
	n int64
}

func (c *countedInput) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// space is the size and the free part of a file system.
type space struct {
	Size, Free        int64 // bytes
	Inodes, InodeFree int64
}

func freeSpace(path string) (space, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return space{}, fmt.Errorf("measure the file system of %s: %w", path, err)
	}
	return space{int64(s.Blocks) * s.Bsize, int64(s.Bavail) * s.Bsize, int64(s.Files), int64(s.Ffree)}, nil
}

// checkEvery is how many bytes are unpacked between two checks of the free space.
const checkEvery = 16 << 20

// boundedLayer is a layer as a tar stream. It ends with an error when the layer exceeds the limits.
type boundedLayer struct {
	in     *countedInput
	out    io.ReadCloser
	limits Limits
	free   func() (space, error)
	sparse *sparse

	n         int64 // bytes unpacked so far
	nextCheck int64 // when n reaches it, the free space is checked again
}

// bounded limits the layer out, which is decompressed from in.
func bounded(in *countedInput, out io.ReadCloser, limits Limits, free func() (space, error)) *boundedLayer {
	return &boundedLayer{in: in, out: out, limits: limits, free: free, sparse: newSparse()}
}

var errTooLarge = errors.New("layer is too large")

// Read implements io.Reader.
func (b *boundedLayer) Read(p []byte) (int, error) {
	if b.n >= b.nextCheck {
		b.nextCheck = b.n + checkEvery
		now, err := b.free()
		if err == nil {
			err = b.limits.checkSpace(now)
		}
		if err != nil {
			return 0, err
		}
	}
	n, err := b.out.Read(p)
	b.n += int64(n)
	b.sparse.add(p[:n])
	if tooLarge := b.limits.checkSize(b.in.n, b.n, b.sparse.size); tooLarge != nil {
		return 0, tooLarge
	}
	return n, err
}

// MediaType implements diff.StreamProcessor.
func (*boundedLayer) MediaType() string { return ocispec.MediaTypeImageLayer }

// Close implements io.Closer.
func (b *boundedLayer) Close() error {
	b.sparse.stop()
	return b.out.Close()
}
