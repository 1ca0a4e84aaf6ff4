package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/errdefs"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// transfer is the progress of the current pulls of one image.
type transfer struct {
	fetched  atomic.Int64 // bytes received from a registry
	total    atomic.Int64 // bytes to receive; 0 until the manifest is known
	unpacked atomic.Int64 // bytes of compressed layers that were unpacked
	pulls    int          // number of pulls, guarded by transfers.mu
}

// transfers are the current pulls, by the image name in the request.
type transfers struct {
	mu     sync.Mutex
	byName map[string]*transfer
}

type transferKey struct{}

// begin starts counting a pull of an image. The content store counts what it reads and writes with the returned
// context, until done is called.
func (t *transfers) begin(ctx context.Context, image string) (counted context.Context, done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byName == nil {
		t.byName = map[string]*transfer{}
	}
	one := t.byName[image]
	if one == nil {
		one = &transfer{}
		t.byName[image] = one
	}
	one.pulls++
	return context.WithValue(ctx, transferKey{}, one), func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if one.pulls--; one.pulls == 0 {
			delete(t.byName, image)
		}
	}
}

func transferOf(ctx context.Context) *transfer {
	one, _ := ctx.Value(transferKey{}).(*transfer)
	return one
}

// PullProgress returns the progress of an image's pulls, in bytes: how many were fetched, how many there are to fetch
// (0: not known yet), and how many compressed bytes were unpacked. All are 0 when no pull of the image is in progress.
func (r *Runtime) PullProgress(image string) (fetched, total, unpacked int64) {
	select {
	case <-r.ready:
	default:
		return 0, 0, 0
	}
	if r.up == nil {
		return 0, 0, 0
	}
	r.up.transfers.mu.Lock()
	defer r.up.transfers.mu.Unlock()
	if one := r.up.transfers.byName[image]; one != nil {
		return one.fetched.Load(), one.total.Load(), one.unpacked.Load()
	}
	return 0, 0, 0
}

// registerContent registers the content store of containerd as one that counts.
func registerContent() {
	registry.Register(&plugin.Registration{
		Type: plugins.ContentPlugin,
		ID:   "content",
		InitFn: func(ic *plugin.InitContext) (any, error) {
			root := ic.Properties[plugins.PropertyRootDir]
			ic.Meta.Exports["root"] = root
			store, err := local.NewStore(root)
			return counting{store}, err
		},
	})
}

// counting is a content store that counts bytes for the pull in the context of each call. The context gets here because
// all of containerd's services are in this process.
//
// The store also discards a partial blob that can never become complete. containerd would resume it in every pull, and
// fail each time.
type counting struct{ content.Store }

// Writer implements content.Ingester.
func (c counting) Writer(ctx context.Context, opts ...content.WriterOpt) (content.Writer, error) {
	var o content.WriterOpts
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return nil, err
		}
	}
	w, err := c.Store.Writer(ctx, opts...)
	if err != nil {
		return w, err
	}
	one := transferOf(ctx)
	if one == nil {
		one = &transfer{} // not part of a pull: the count is not used
	}
	counted := &countingWriter{Writer: w, transfer: one, abort: func(ctx context.Context) error {
		return c.Abort(ctx, o.Ref)
	}}
	if status, err := w.Status(); err == nil {
		counted.add(status.Offset) // fetched by an earlier pull
		if o.Desc.Size > 0 && status.Offset > o.Desc.Size {
			if err := counted.Truncate(0); err != nil {
				return nil, errors.Join(err, w.Close())
			}
		}
	}
	return counted, nil
}

// ReaderAt implements content.Provider.
func (c counting) ReaderAt(ctx context.Context, desc ocispec.Descriptor) (content.ReaderAt, error) {
	r, err := c.Store.ReaderAt(ctx, desc)
	one := transferOf(ctx)
	if err != nil || one == nil {
		return r, err
	}
	switch {
	case images.IsManifestType(desc.MediaType):
		c.plan(ctx, r, one)
	case images.IsLayerType(desc.MediaType):
		return &countingReader{ReaderAt: r, transfer: one}, nil
	}
	return r, nil
}

// maxManifest is containerd's size limit for manifests, in bytes.
const maxManifest = 8 << 20

// plan sets the total of a transfer: the sizes of the blobs that a manifest names and that are not in the store yet. It
// ignores a manifest that it cannot read, since containerd reports the error.
func (c counting) plan(ctx context.Context, r content.ReaderAt, one *transfer) {
	if r.Size() > maxManifest {
		return
	}
	text, err := io.ReadAll(io.NewSectionReader(r, 0, r.Size()))
	var manifest ocispec.Manifest
	if err != nil || json.Unmarshal(text, &manifest) != nil {
		return
	}
	total := int64(0)
	for _, desc := range append(manifest.Layers, manifest.Config) {
		if _, err := c.Info(ctx, desc.Digest); err != nil {
			total += desc.Size
		}
	}
	one.total.CompareAndSwap(0, total)
}

// countingWriter counts the bytes that a pull receives.
type countingWriter struct {
	content.Writer
	transfer *transfer
	written  int64
	abort    func(context.Context) error // deletes the partial blob
}

// Commit implements content.Writer.
func (w *countingWriter) Commit(ctx context.Context, size int64, expected digest.Digest, opts ...content.Opt) error {
	err := w.Writer.Commit(ctx, size, expected, opts...)
	if errdefs.IsFailedPrecondition(err) { // the size or the digest differs
		if e := errors.Join(w.Close(), w.abort(ctx)); e != nil && !errdefs.IsNotFound(e) {
			return fmt.Errorf("%w; delete the partial blob, which the next pull will resume: %w", err, e)
		}
	}
	return err
}

func (w *countingWriter) add(n int64) {
	w.written += n
	w.transfer.fetched.Add(n)
}

// Write implements io.Writer.
func (w *countingWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.add(int64(n))
	return n, err
}

// Truncate implements content.Writer.
func (w *countingWriter) Truncate(size int64) error {
	err := w.Writer.Truncate(size)
	if err == nil {
		w.add(size - w.written)
	}
	return err
}

// countingReader counts the compressed bytes that are unpacked.
type countingReader struct {
	content.ReaderAt
	transfer *transfer
}

// ReadAt implements io.ReaderAt.
func (r *countingReader) ReadAt(p []byte, at int64) (int, error) {
	n, err := r.ReaderAt.ReadAt(p, at)
	r.transfer.unpacked.Add(int64(n))
	return n, err
}
