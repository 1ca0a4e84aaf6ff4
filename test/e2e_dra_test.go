package test

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/berth-run/berth/test/dradriver"
)

// draDriver starts, changes and stops the sample DRA driver.
func draDriver(ts *testscript.TestScript, args []string) {
	d := ts.Value(daemonKey{}).(*daemon)
	action, args := args[0], args[1:]
	if action == "start" {
		dir, vendor := cdiVendor(ts)
		var err error
		d.dra, err = dradriver.Start(context.Background(), dradriver.Options{
			Name: vendor, Root: rootOf(ts), Node: nodeName, Client: nodeOf(ts).client, Devices: args, Specs: dir,
		})
		ts.Check(err)
		ts.Defer(d.dra.Stop)
		return
	}
	if d.dra == nil {
		ts.Fatalf("dra-driver %s: no driver was started", action)
	}
	switch action {
	case "stop":
		d.dra.Stop()
	case "sick":
		d.dra.SetHealth(args[0], kubeletplugin.HealthStatusUnhealthy)
	case "hang":
		d.dra.Hang(args[0])
	case "answer":
		d.dra.Hang("")
	case "refuse":
		d.dra.Refuse(strings.Join(args, " "))
	case "await":
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := d.dra.Await(ctx, strings.Join(args, " ")); err != nil {
			fail(ts, "%v", err)
		}
	case "calls":
		ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Join(append(d.dra.Calls(), ""), "\n")), 0o644))
	case "prepared":
		if got := fmt.Sprint(d.dra.Prepared()); got != args[0] {
			fail(ts, "%s claims are prepared, want %s; calls: %q", got, args[0], d.dra.Calls())
		}
	default:
		ts.Fatalf("dra-driver %s: unknown", action)
	}
}
