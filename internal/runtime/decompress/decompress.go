package decompress

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/klauspost/compress/zstd"
)

// MaxWindow is the size in bytes of the largest window of a zstd frame that is read. The zstd program has the same
// limit unless told otherwise (zstd(1), --long). A frame of a few bytes makes its reader allocate as much as the
// window.
const MaxWindow = 128 << 20

// Stream returns the content of a stream that is compressed with gzip or zstd, or not at all. window limits the memory
// for zstd and is at most MaxWindow. Reading a frame with a larger window fails. The caller closes the result.
func Stream(r io.Reader, window uint64) (io.ReadCloser, error) {
	in := bufio.NewReader(r)
	start, err := in.Peek(10)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if compression.DetectCompression(start) != compression.Zstd {
		return compression.DecompressStream(in)
	}
	z, err := zstd.NewReader(in, zstd.WithDecoderMaxWindow(window))
	if err != nil {
		return nil, err
	}
	return &frames{z, window}, nil
}

// frames is a zstd stream.
type frames struct {
	*zstd.Decoder
	window uint64
}

// Read implements io.Reader.
func (f *frames) Read(p []byte) (int, error) {
	n, err := f.Decoder.Read(p)
	return n, f.explain(err)
}

// WriteTo implements io.WriterTo.
func (f *frames) WriteTo(w io.Writer) (int64, error) {
	n, err := f.Decoder.WriteTo(w)
	return n, f.explain(err)
}

func (f *frames) explain(err error) error {
	if errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return fmt.Errorf("%w: compress it with a window of at most %d bytes", err, f.window)
	}
	return err
}

// Close implements io.Closer.
func (f *frames) Close() error {
	f.Decoder.Close()
	return nil
}
