package test

import (
	"context"
	"errors"
	"os"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/berth-run/berth/internal/cluster/podcert/podcerttest"
)

// signCommand is "signer", which answers the PodCertificateRequests of the cluster.
func signCommand(ts *testscript.TestScript, args []string) {
	n := nodeOf(ts)
	switch {
	case args[0] == "start" && len(args) == 1 && n.signer == nil:
		var err error
		n.signer, err = podcerttest.New()
		ts.Check(err)
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- n.signer.Run(ctx, n.client) }()
		ts.Defer(func() {
			stop()
			if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
				ts.Logf("the signer ended: %v", err)
			}
		})
	case args[0] == "verify" && len(args) == 3 && n.signer != nil:
		bundle, err := os.ReadFile(ts.MkAbs(args[2]))
		ts.Check(err)
		ts.Check(n.signer.Verify(bundle, "default", args[1]))
	default:
		ts.Fatalf("signer %q: unknown action, or the signer is in this state already", args)
	}
}
