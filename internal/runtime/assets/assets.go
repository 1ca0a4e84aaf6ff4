package assets

import (
	"embed"
	"errors"
	"io"
	"io/fs"

	"github.com/klauspost/compress/zstd"
)

//go:embed *
var files embed.FS

// ErrMissing says that the binary was built without `make assets`.
var ErrMissing = errors.New("this build lacks an embedded program: run `make assets`, then build again")

// Sums returns the output of sha256sum for all programs.
func Sums() ([]byte, error) {
	sums, err := files.ReadFile("SHA256SUMS")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrMissing
	}
	return sums, err
}

// Open returns the content of a program.
func Open(name string) (io.ReadCloser, error) {
	packed, err := files.Open(name + ".zst") // unlike ReadFile it makes no copy
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrMissing
	}
	if err != nil {
		return nil, err
	}
	decoder, err := zstd.NewReader(packed, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	return decoder.IOReadCloser(), nil
}

// HolderName is the name of the program that keeps the namespaces of a pod open.
const HolderName = "holder"

// Holder returns the program that keeps the namespaces of a pod open.
func Holder() ([]byte, error) {
	r, err := Open(HolderName)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }() // it is only read
	return io.ReadAll(r)
}
