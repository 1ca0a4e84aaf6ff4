package test

import (
	"archive/tar"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/berth-run/berth/internal/api"
	images "github.com/berth-run/berth/test/registry"
)

// serveRegistry starts a registry that has the workload as $REGISTRY/team/app:1 and another image as team/other:1.
// With a user and a password as arguments it requires them for pulls. With "unknown-authority" it serves HTTPS, and the
// runtime does not know its authority.
func (h *harness) serveRegistry(ts *testscript.TestScript, args []string) {
	o := images.Options{}
	switch {
	case len(args) == 2:
		o.User, o.Password = args[0], args[1]
	case len(args) == 1:
		o.TLS, o.Unknown = true, true
	}
	r := images.New(o)
	ts.Defer(r.Close)
	hosts := filepath.Join(rootOf(ts), "certs.d")
	if external := ts.Value(daemonKey{}).(*daemon).runtime; external != nil {
		hosts = external.Registries()
	}
	ts.Check(r.WriteHosts(hosts))
	_, err := r.PushArchive("team/app:1", h.archive)
	ts.Check(err)
	layer, err := images.Random("other", 1<<20)
	ts.Check(err)
	_, err = r.Push("team/other:1", layer)
	ts.Check(err)
	digest, err := layer.Digest()
	ts.Check(err)
	ts.Value(daemonKey{}).(*daemon).images = &imageRegistry{Registry: r, other: digest.String()}
	ts.Setenv("REGISTRY", r.Host())
}

// imageRegistry is the registry of a script.
type imageRegistry struct {
	*images.Registry
	other string        // the digest of team/other:1's layer
	heal  chan struct{} // closed by heal-registry: stalled answers continue
}

// stallRegistry makes answers with the layer of team/other:1 stop in the middle until heal-registry.
func (h *harness) stallRegistry(ts *testscript.TestScript, _ []string) {
	r := ts.Value(daemonKey{}).(*daemon).images
	r.heal = make(chan struct{})
	r.Inject(images.Stall(r.other, r.heal))
}

// trickleRegistry makes the layer of team/other:1, which has 1 MiB, arrive slowly until heal-registry.
func (h *harness) trickleRegistry(ts *testscript.TestScript, _ []string) {
	const piece, pause = 512, 20 * time.Millisecond
	r := ts.Value(daemonKey{}).(*daemon).images
	r.heal = make(chan struct{})
	r.Inject(images.Trickle(r.other, piece, pause, r.heal))
}

func (h *harness) healRegistry(ts *testscript.TestScript, _ []string) {
	close(ts.Value(daemonKey{}).(*daemon).images.heal)
}

// pushHostile pushes an image of the workload with one more layer, which attacks the host: its file names lead to
// DIR, and it has device nodes.
func (h *harness) pushHostile(ts *testscript.TestScript, args []string) {
	image, err := tarball.ImageFromPath(h.archive, nil)
	ts.Check(err)
	layers, err := image.Layers()
	ts.Check(err)
	dir, up := ts.MkAbs(args[0]), strings.Repeat("../", 20)
	file := func(name string) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644,
			PAXRecords: map[string]string{"content": "owned"}}
	}
	hostile, err := images.Layer(
		file(up+dir+"/dots"), file(dir+"/absolute"),
		tar.Header{Typeflag: tar.TypeSymlink, Name: "out", Linkname: dir}, file("out/link"),
		file(up+dir+"/.wh.bystander"),
		tar.Header{Typeflag: tar.TypeBlock, Name: "disk", Mode: 0o666, Devmajor: 7, Devminor: 0},
		tar.Header{Typeflag: tar.TypeChar, Name: "kmsg", Mode: 0o666, Devmajor: 1, Devminor: 11},
	)
	ts.Check(err)
	_, err = ts.Value(daemonKey{}).(*daemon).images.Push("team/hostile:1", append(layers, hostile)...)
	ts.Check(err)
}

// awaitImageGone waits until the agent has no image of this name.
func (h *harness) awaitImageGone(ts *testscript.TestScript, args []string) {
	eventually(ts, func() (bool, any) {
		all, err := clientOf(ts).Images().List(context.Background())
		ts.Check(err)
		return !slices.ContainsFunc(all, func(i api.Image) bool { return slices.Contains(i.Tags, args[0]) }), all
	})
}
