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

// Limits bound how much disk space a layer, or another compressed archive, may use once it is unpacked. A manifest
// states only the compressed size of a layer, and a small layer can unpack to any size.
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
			if compressed == "" {
				return limits.bounded("layer", in, io.NopCloser(in), root), nil
			}
			return limits.decompressed("layer", in, root)
		}, true
	})
}

// Archive returns the content of a tar archive, which may be compressed with gzip or zstd. Reading it fails when it
// exceeds the limits. root is a directory on the file system that gets the content. If root is "", any part of the file
// system may be used. The caller closes the result.
func (l Limits) Archive(content io.Reader, root string) (io.ReadCloser, error) {
	return l.withDefaults().decompressed("archive", &countedInput{Reader: content}, root)
}

func (l Limits) decompressed(what string, in *countedInput, root string) (*boundedArchive, error) {
	plain, err := decompress.Stream(in, decompress.MaxWindow)
	if err != nil {
		return nil, err
	}
	return l.bounded(what, in, plain, root), nil
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

// boundedArchive is a tar stream. It ends with an error when it exceeds the limits.
type boundedArchive struct {
	what   string // "layer" or "archive"
	in     *countedInput
	out    io.ReadCloser
	limits Limits
	root   string // on the file system that gets the files; "": not known
	sparse *sparse

	n         int64 // bytes unpacked so far
	nextCheck int64 // when n reaches it, the free space is checked again
}

// bounded limits the archive out, which is decompressed from in.
func (l Limits) bounded(what string, in *countedInput, out io.ReadCloser, root string) *boundedArchive {
	return &boundedArchive{what: what, in: in, out: out, limits: l, root: root, sparse: newSparse()}
}

// errTooLarge follows what is too large.
var errTooLarge = errors.New("is too large")

// Read implements io.Reader.
func (b *boundedArchive) Read(p []byte) (int, error) {
	if b.n >= b.nextCheck && b.root != "" {
		b.nextCheck = b.n + checkEvery
		now, err := freeSpace(b.root)
		if err != nil {
			return 0, err
		}
		if tooLarge := b.limits.checkSpace(now); tooLarge != nil {
			return 0, fmt.Errorf("%s %w", b.what, tooLarge)
		}
	}
	n, err := b.out.Read(p)
	b.n += int64(n)
	b.sparse.add(p[:n])
	if tooLarge := b.limits.checkSize(b.in.n, b.n, b.sparse.size); tooLarge != nil {
		return 0, fmt.Errorf("%s %w", b.what, tooLarge)
	}
	return n, err
}

// MediaType implements diff.StreamProcessor.
func (*boundedArchive) MediaType() string { return ocispec.MediaTypeImageLayer }

// Close implements io.Closer.
func (b *boundedArchive) Close() error {
	b.sparse.stop()
	return b.out.Close()
}
