package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/typeurl/v2"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
)

// Unpacking bounds what a compressed layer may become on disk. A layer says how large it is only
// compressed, and a small one can hold anything.
type Unpacking struct {
	// MaxRatio is how many times its compressed size a layer may grow to, once it is larger than
	// Harmless. Default 500: no compression of real files comes close, zeros do (gzip: 1030).
	MaxRatio int64
	// Harmless is how many bytes any layer may unpack to. Default 1 GiB.
	Harmless int64
	// Reserve is how many bytes of the file system under Root unpacking leaves free. Default 5 % of
	// it, at most 1 GiB. As large a part of its inodes is left too.
	Reserve int64
}

func (u Unpacking) withDefaults() Unpacking {
	if u.MaxRatio == 0 {
		u.MaxRatio = 500
	}
	if u.Harmless == 0 {
		u.Harmless = 1 << 30
	}
	return u
}

// registerUnpack has all layers of this process unpacked within the bounds. The
// list of processors is containerd's, and the process's: there is one runtime in it.
func registerUnpack(bounds Unpacking, root string) {
	bounds = bounds.withDefaults()
	diff.RegisterProcessor(func(ctx context.Context, mediaType string) (diff.StreamProcessorInit, bool) {
		compressed, err := images.DiffCompression(ctx, mediaType)
		if err != nil {
			return nil, false
		}
		return func(_ context.Context, stream diff.StreamProcessor, _ map[string]typeurl.Any) (diff.StreamProcessor,
			error) {
			in := &countedInput{Reader: stream}
			layer := &boundedLayer{in: in, out: io.NopCloser(in), bounds: bounds, free: func() (space, error) {
				return freeSpace(root)
			}}
			if compressed == "" {
				return layer, nil
			}
			plain, err := compression.DecompressStream(in)
			if err != nil {
				return nil, err
			}
			layer.out = plain
			return layer, nil
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

// space is what a file system has.
type space struct {
	Size, Free        int64 // bytes
	Inodes, InodeFree int64
}

func freeSpace(path string) (space, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return space{}, fmt.Errorf("look at the file system of %s: %w", path, err)
	}
	return space{int64(s.Blocks) * s.Bsize, int64(s.Bavail) * s.Bsize, int64(s.Files), int64(s.Ffree)}, nil
}

// checkEvery is how many bytes are unpacked between two looks at the disk.
const checkEvery = 16 << 20

// boundedLayer is a layer as a tar stream that ends with an error when it
// becomes more than the machine should take.
type boundedLayer struct {
	in     *countedInput
	out    io.ReadCloser
	bounds Unpacking
	free   func() (space, error)

	n       int64
	checked int64 // n at which the disk is looked at next
}

var errTooLarge = errors.New("layer is too large")

// Read implements io.Reader.
func (b *boundedLayer) Read(p []byte) (int, error) {
	if b.n >= b.checked {
		b.checked = b.n + checkEvery
		now, err := b.free()
		if err == nil {
			err = b.bounds.room(now)
		}
		if err != nil {
			return 0, err
		}
	}
	n, err := b.out.Read(p)
	b.n += int64(n)
	if over := b.bounds.grown(b.in.n, b.n); over != nil {
		return 0, over
	}
	return n, err
}

// MediaType implements diff.StreamProcessor.
func (*boundedLayer) MediaType() string { return ocispec.MediaTypeImageLayer }

// Close implements io.Closer.
func (b *boundedLayer) Close() error { return b.out.Close() }
