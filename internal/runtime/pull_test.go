package runtime_test

import (
	"archive/tar"
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/runtime"
	"github.com/berth-run/berth/test/registry"
)

// puller is a runtime that pulls from the test's registries.
type puller struct {
	*runtime.Runtime
	cri.ImageServiceClient
	dir string
}

// serve starts a registry that the runtime can reach.
func (p *puller) serve(t *testing.T, o registry.Options) *registry.Registry {
	t.Helper()
	r := registry.New(o)
	t.Cleanup(r.Close)
	if err := r.WriteHosts(filepath.Join(p.dir, "certs.d")); err != nil {
		t.Fatal(err)
	}
	return r
}

func (p *puller) pull(ctx context.Context, image string, auth *cri.AuthConfig) error {
	_, err := p.PullImage(ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: image}, Auth: auth})
	return err
}

// usable reports whether an image is in the store, so that containers can use it.
func (p *puller) usable(t *testing.T, image string) bool {
	t.Helper()
	r, err := p.ImageStatus(t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: image}})
	if err != nil {
		t.Fatal(err)
	}
	return r.Image != nil
}

func random(t *testing.T, file string, size int) (layer v1.Layer, digest string) {
	t.Helper()
	layer, err := registry.Random(file, size)
	if err != nil {
		t.Fatal(err)
	}
	d, err := layer.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return layer, d.String()
}

func push(t *testing.T, r *registry.Registry, repository string, layers ...v1.Layer) string {
	t.Helper()
	name, err := r.Push(repository, layers...)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// testPulls tests the pulls of a runtime. TestRuntime runs it, since a process can have only one runtime.
func testPulls(t *testing.T, p *puller) {
	t.Run("auth", p.testAuth)
	t.Run("faults", p.testFaults)
	t.Run("hostile", p.testHostile)
	t.Run("shared layer", p.testSharedLayer)
	t.Run("progress", p.testProgress)
	t.Run("archive", p.testArchive)
}

func (p *puller) testAuth(t *testing.T) {
	layer, _ := random(t, "auth", 1000)
	good, bad := &cri.AuthConfig{Username: "me", Password: "secret"}, &cri.AuthConfig{Username: "me", Password: "wrong"}
	for name, o := range map[string]registry.Options{
		"plain": {}, "tls": {TLS: true}, "basic": {User: "me", Password: "secret"},
		"token": {TLS: true, User: "me", Password: "secret", Token: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := p.serve(t, o)
			image := push(t, r, "team/"+name+":1", layer)
			if o.User != "" {
				for _, auth := range []*cri.AuthConfig{nil, bad} {
					if err := p.pull(t.Context(), image, auth); err == nil || p.usable(t, image) {
						t.Errorf("pulled with %v: %v", auth, err)
					}
				}
			}
			if err := p.pull(t.Context(), image, good); err != nil || !p.usable(t, image) {
				t.Errorf("pull: %v", err)
			}
		})
	}
}

// A bad answer of the registry never leaves a usable image.
func (p *puller) testFaults(t *testing.T) {
	r := p.serve(t, registry.Options{})
	type fault func(digest string) registry.Fault
	for name, c := range map[string]struct {
		fault fault
		heals bool // the pull succeeds despite the fault
		says  string
	}{
		"wrong bytes":    {fault: registry.Wrong, says: "unexpected commit digest"},
		"too long":       {fault: registry.Long, says: "expected size"},
		"truncated":      {fault: registry.Short, says: "EOF"},
		"reset for ever": {fault: func(d string) registry.Fault { return registry.Reset(d, 1<<20) }},
		"reset once":     {fault: func(d string) registry.Fault { return registry.Reset(d, 1) }, heals: true},
		"not there": {fault: func(string) registry.Fault {
			return registry.Status(http.StatusNotFound, 1<<20)
		}, says: "not found"},
		"broken": {fault: func(string) registry.Fault {
			return registry.Status(http.StatusInternalServerError, 1<<20)
		}, says: "500"},
		"busy for a time": {fault: func(string) registry.Fault {
			return registry.Status(http.StatusTooManyRequests, 1)
		}, heals: true},
	} {
		t.Run(name, func(t *testing.T) {
			layer, digest := random(t, name, 200_000)
			image := push(t, r, "faults/"+strings.ReplaceAll(name, " ", "-")+":1", layer)
			r.Inject(c.fault(digest))
			err := p.pull(t.Context(), image, nil)
			r.Inject(nil)
			if c.heals {
				if err != nil || !p.usable(t, image) {
					t.Errorf("pull despite the fault: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.says) || p.usable(t, image) {
				t.Errorf("error %v, want one with %q and no image", err, c.says)
			}
			if err := p.pull(t.Context(), image, nil); err != nil || !p.usable(t, image) {
				t.Errorf("pull after the fault has ended: %v", err)
			}
		})
	}
}

// A layer cannot write outside its own directory, whatever paths its entries have. A layer that unpacks to too many
// bytes is refused.
func (p *puller) testHostile(t *testing.T) {
	r := p.serve(t, registry.Options{})
	victim := filepath.Join(p.dir, "victim")
	file := func(name string) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644,
			PAXRecords: map[string]string{"content": "owned"}}
	}
	up := strings.Repeat("../", 20)
	for name, entries := range map[string][]tar.Header{
		"dotdot":     {file(up + victim)},
		"absolute":   {file(victim)},
		"symlink":    {{Typeflag: tar.TypeSymlink, Name: "out", Linkname: p.dir}, file("out/victim")},
		"symlink up": {{Typeflag: tar.TypeSymlink, Name: "out", Linkname: up + p.dir}, file("out/victim")},
		"hardlink": {{Typeflag: tar.TypeLink, Name: "shadow", Linkname: filepath.Join(p.dir, "bystander")},
			file("shadow")},
		"symlink chain": {{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "/"},
			{Typeflag: tar.TypeSymlink, Name: "a/b", Linkname: p.dir}, file("b/victim")},
		"whiteout": {file(up + filepath.Join(p.dir, ".wh.bystander"))},
		"opaque":   {{Typeflag: tar.TypeSymlink, Name: "out", Linkname: p.dir}, file("out/.wh..wh..opq")},
	} {
		t.Run(name, func(t *testing.T) {
			bystander := filepath.Join(p.dir, "bystander")
			if err := os.WriteFile(bystander, []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
			layer, err := registry.Layer(entries...)
			if err != nil {
				t.Fatal(err)
			}
			image := push(t, r, "hostile/"+strings.ReplaceAll(name, " ", "-")+":1", layer)
			err = p.pull(t.Context(), image, nil) // may succeed if all files stay inside the layer
			if p.usable(t, image) != (err == nil) {
				t.Errorf("pull: %v, image usable: %v", err, p.usable(t, image))
			}
			if text, err := os.ReadFile(bystander); err != nil || string(text) != "mine" {
				t.Errorf("the file outside has %q, %v", text, err)
			}
			if _, err := os.Lstat(victim); err == nil {
				t.Error("the layer has written a file outside its directory")
			}
		})
	}
	bomb, err := registry.Bomb(64 << 20)
	if err != nil {
		t.Fatal(err)
	}
	image := push(t, r, "hostile/bomb:1", bomb)
	if err := p.pull(t.Context(), image, nil); err == nil || !strings.Contains(err.Error(), "layer is too large") ||
		p.usable(t, image) {
		t.Errorf("bomb: %v", err)
	}
	wide := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, (29 - 10) << 3, 1 | 1<<3, 0, 0, 'x'} // zstd, a window of 512 MiB
	image = push(t, r, "hostile/window:1", static.NewLayer(wide, types.OCILayerZStd))
	if err := p.pull(t.Context(), image, nil); err == nil || !strings.Contains(err.Error(), "window size exceeded") ||
		p.usable(t, image) {
		t.Errorf("a large window: %v", err)
	}
}

// Two images that are pulled at the same time fetch their shared layer only once.
func (p *puller) testSharedLayer(t *testing.T) {
	r := p.serve(t, registry.Options{})
	shared, digest := random(t, "shared", 300_000)
	r.Inject(registry.Slow(digest, 100_000, 100*time.Millisecond))
	var pulls sync.WaitGroup
	for _, name := range []string{"one", "two", "three"} {
		own, _ := random(t, name, 1000)
		image := push(t, r, "shared/"+name+":1", shared, own)
		pulls.Go(func() {
			if err := p.pull(t.Context(), image, nil); err != nil {
				t.Error(err)
			}
		})
	}
	pulls.Wait()
	if n := r.Fetches(digest); n != 1 {
		t.Errorf("the shared layer was fetched %d times", n)
	}
}

func (p *puller) testProgress(t *testing.T) {
	r := p.serve(t, registry.Options{})
	layer, digest := random(t, "progress", 400_000)
	size, err := layer.Size()
	if err != nil {
		t.Fatal(err)
	}
	image := push(t, r, "progress/slow:1", layer)
	r.Inject(registry.Slow(digest, 100_000, 50*time.Millisecond))
	ended := make(chan error, 1)
	go func() { ended <- p.pull(t.Context(), image, nil) }()
	var seen, total int64
	for {
		select {
		case err := <-ended:
			if err != nil || seen < 100_000 || total < size {
				t.Errorf("pull: %v, saw %d of %d", err, seen, total)
			}
			if fetched, _, _ := p.PullProgress(image); fetched != 0 {
				t.Errorf("%d bytes after the end", fetched)
			}
			return
		case <-time.After(5 * time.Millisecond):
			fetched, all, _ := p.PullProgress(image)
			seen, total = max(seen, fetched), max(total, all)
		}
	}
}

// An exported archive can be imported again.
func (p *puller) testArchive(t *testing.T) {
	r := p.serve(t, registry.Options{})
	layer, _ := random(t, "saved", 1000)
	image := push(t, r, "archive/saved:1", layer)
	if err := p.pull(t.Context(), image, nil); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := p.Export(t.Context(), &archive, image); err != nil {
		t.Fatal(err)
	}
	if _, err := p.RemoveImage(t.Context(), &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: image}}); err != nil {
		t.Fatal(err)
	}
	loaded, err := p.Import(t.Context(), &archive)
	if err != nil || len(loaded) != 1 || loaded[0].Name != image || !p.usable(t, image) {
		t.Errorf("loaded %v, %v", loaded, err)
	}
	if err := p.Export(t.Context(), &archive, "localhost/none:1"); err == nil {
		t.Error("an unknown image was exported")
	}
}
