package test

import (
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"

	images "github.com/berth-run/berth/test/registry"
)

// serveRegistry starts a registry that has the workload as $REGISTRY/team/app:1,
// for a user with a password if they are given.
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
	ts.Setenv("REGISTRY", r.Host())
}
