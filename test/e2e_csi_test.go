package test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/berth-run/berth/test/csidriver"
)

// csiDriver is a CSI driver of a script.
type csiDriver struct {
	*csidriver.Driver
	stop, detach func() // end the driver and its external-attacher; nil if it does not run
}

// csiDriver starts, changes and stops CSI drivers, which have names of the script's choice.
func (h *harness) csiDriver(ts *testscript.TestScript, args []string) {
	n := nodeOf(ts)
	action, name, args := args[0], args[1], args[2:]
	d := n.drivers[name]
	if d == nil {
		if action != "start" {
			ts.Fatalf("csi-driver %s: driver %s was not started", action, name)
		}
		d = newCSIDriver(ts, name, args)
		n.drivers[name] = d
		ts.Defer(d.end)
	}
	switch action {
	case "start":
		root := rootOf(ts)
		stop, err := d.Serve(filepath.Join(root, "plugins", name, "csi.sock"),
			filepath.Join(root, "plugins_registry", name+"-reg.sock"))
		ts.Check(err)
		d.stop = stop
	case "stop":
		d.stop()
		d.stop = nil
	case "attach":
		d.attach(ts)
	case "detach":
		d.detach()
		d.detach = nil
	case "fail":
		d.Fail(args[0], faultOf(ts, args[1]))
	case "heal":
		d.Fail(args[0], nil)
	case "condition":
		d.Condition(strings.Join(args, " "))
	case "await":
		d.await(ts, args)
	case "calls":
		ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(d.order()), 0o644))
	case "requests":
		ts.Check(os.WriteFile(ts.MkAbs(args[1]), d.requests(ts, args[0]), 0o644))
	default:
		ts.Fatalf("csi-driver %s: unknown", action)
	}
}

// newCSIDriver reads [driver=NAME] [version=V] [limit=N] [topology=KEY=VALUE] [can=CAPABILITY,...].
func newCSIDriver(ts *testscript.TestScript, name string, args []string) *csiDriver {
	d := &csidriver.Driver{Name: name, NodeID: "id-of-" + nodeName, Dir: ts.MkAbs("volumes"),
		Topology: map[string]string{}}
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		var err error
		switch key {
		case "driver":
			d.Name = value
		case "version":
			d.Version = value
		case "limit":
			d.Limit, err = strconv.ParseInt(value, 10, 64)
		case "topology":
			label, segment, _ := strings.Cut(value, "=")
			d.Topology[label] = segment
		case "can":
			for what := range strings.SplitSeq(value, ",") {
				number, ok := csi.NodeServiceCapability_RPC_Type_value[what]
				if what == "VOLUME_CONDITION" { // of CSI 1.9
					number, ok = 4, true
				}
				if !ok {
					ts.Fatalf("csi-driver start: unknown capability %q of the node service", what)
				}
				d.Can = append(d.Can, csi.NodeServiceCapability_RPC_Type(number))
			}
		default:
			ts.Fatalf("csi-driver start: unknown option %q", arg)
		}
		ts.Check(err)
	}
	return &csiDriver{Driver: d}
}

func (d *csiDriver) end() {
	for _, f := range []func(){d.detach, d.stop} {
		if f != nil {
			f()
		}
	}
}

// attach runs the driver's external-attacher.
func (d *csiDriver) attach(ts *testscript.TestScript) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	client := nodeOf(ts).client
	running.Go(func() {
		if err := d.Attach(ctx, client); ctx.Err() == nil {
			ts.Logf("external-attacher of %s ended: %v", d.Name, err)
		}
	})
	d.detach = func() { cancel(); running.Wait() }
}

func faultOf(ts *testscript.TestScript, name string) error {
	if name == "hang" {
		return csidriver.ErrHang
	}
	var code codes.Code
	ts.Check(code.UnmarshalJSON([]byte(strconv.Quote(name))))
	return status.Error(code, "as the script wants")
}

// await waits for METHOD [N]: for the Nth call of the method, or for one more call.
func (d *csiDriver) await(ts *testscript.TestScript, args []string) {
	want := len(d.Calls(args[0])) + 1
	if len(args) > 1 {
		var err error
		want, err = strconv.Atoi(args[1])
		ts.Check(err)
	}
	eventually(ts, func() (bool, any) {
		n := len(d.Calls(args[0]))
		return n >= want, fmt.Sprintf("%s was called %d times, want %d", args[0], n, want)
	})
}

// order lists the calls about volumes in order, a line for each. It omits a call that repeats the previous one,
// because the agent may call a driver twice.
func (d *csiDriver) order() string {
	var lines []string
	for _, c := range d.Calls("") {
		q, ok := c.Request.(interface{ GetVolumeId() string })
		if ok && c.Method != "NodeGetVolumeStats" {
			lines = append(lines, c.Method+" "+q.GetVolumeId()+"\n")
		}
	}
	return strings.Join(slices.Compact(lines), "")
}

// requests returns the requests of a method as JSON, a line for each.
func (d *csiDriver) requests(ts *testscript.TestScript, method string) []byte {
	var lines bytes.Buffer
	for _, c := range d.Calls(method) {
		text, err := protojson.Marshal(c.Request)
		ts.Check(err)
		ts.Check(json.Compact(&lines, text))
		lines.WriteByte('\n')
	}
	return lines.Bytes()
}
