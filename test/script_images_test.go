package test

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/berth-run/berth/internal/server/api"
	images "github.com/berth-run/berth/test/registry"
)

// serveRegistry starts a registry that has the workload as $REGISTRY/team/app:1 and
// another image as team/other:1, for a user with a password if they are given.
func (h *harness) serveRegistry(ts *testscript.TestScript, args []string) {
	o := images.Options{}
	if len(args) == 2 {
		o.User, o.Password = args[0], args[1]
	}
	r := images.New(o)
	ts.Defer(r.Close)
	ts.Check(r.WriteHosts(filepath.Join(rootOf(ts), "certs.d")))
	_, err := r.PushArchive("team/app:1", h.archive)
	ts.Check(err)
	layer, err := images.Random("other", 1<<20)
	ts.Check(err)
	_, err = r.Push("team/other:1", layer)
	ts.Check(err)
	ts.Setenv("REGISTRY", r.Host())
}

// awaitImageGone waits until the agent has no image of that name.
func (h *harness) awaitImageGone(ts *testscript.TestScript, args []string) {
	eventually(ts, func() (bool, any) {
		all, err := clientOf(ts).Images().List(context.Background())
		ts.Check(err)
		return !slices.ContainsFunc(all, func(i api.Image) bool { return slices.Contains(i.Tags, args[0]) }), all
	})
}
