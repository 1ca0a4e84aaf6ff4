package test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/vishvananda/netlink"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/limit/limittest"
	"github.com/berth-run/berth/internal/model/pod"
)

// otherNetwork is a CNI configuration like the one that a cluster's network plugin installs on a node.
const otherNetwork = `{"cniVersion": "1.0.0", "name": "other", "plugins": [
 {"type": "bridge", "bridge": %q, "isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables", "ipam":
  {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.204.%d.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
 {"type": "portmap", "backend": "nftables", "snat": true, "capabilities": {"portMappings": true}}]}`

// cni changes the CNI configuration in net.d of the script's directory, or waits for its effect.
func (h *harness) cni(ts *testscript.TestScript, args []string) {
	d, dir := ts.Value(daemonKey{}).(*daemon), ts.MkAbs("net.d")
	file := filepath.Join(dir, "10-other.conflist")
	switch {
	case args[0] == "up":
		bridge := fmt.Sprintf("berth-cni%d", d.place)
		ts.Check(os.MkdirAll(dir, 0o755))
		ts.Check(os.WriteFile(file, fmt.Appendf(nil, otherNetwork, bridge, ts.MkAbs("ipam"), d.place), 0o600))
		ts.Defer(func() {
			if link, err := netlink.LinkByName(bridge); err == nil {
				ts.Check(netlink.LinkDel(link))
			}
		})
	case args[0] == "down":
		ts.Check(os.Remove(file))
	case args[0] == "gone":
		ts.Check(os.RemoveAll(dir))
	case args[0] == "await" && len(args) == 2:
		h.awaitNetwork(ts, args[1])
	case args[0] == "end" && len(args) == 2:
		h.endClean(ts, args[1])
	default:
		ts.Fatalf("cni %q: unknown", args)
	}
}

// vpn makes a network device of the script's place, or removes it. The device has a route to a range in a routing table
// of its own. The argument is the range, the name of a file whose first line begins with it, or "down".
func (h *harness) vpn(ts *testscript.TestScript, args []string) {
	name := fmt.Sprintf("berth-vpn%d", ts.Value(daemonKey{}).(*daemon).place)
	remove := func() {
		if link, err := netlink.LinkByName(name); err == nil {
			ts.Check(netlink.LinkDel(link))
		}
	}
	if args[0] == "down" {
		remove()
		return
	}
	first, _, _ := strings.Cut(args[0], ",")
	if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
		first, _, _ = strings.Cut(ts.ReadFile(args[0]), ",")
	}
	to, err := netlink.ParseIPNet(first)
	ts.Check(err)
	ts.Defer(remove)
	link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}
	ts.Check(netlink.LinkAdd(link))
	ts.Check(netlink.LinkSetUp(link))
	ts.Check(netlink.RouteAdd(&netlink.Route{LinkIndex: link.Index, Dst: to, Table: 51820}))
}

// awaitNetwork waits until new pods get a network whose configuration contains the wanted text. "built-in" stands for
// the embedded runtime's own network, and "none" for no network.
func (h *harness) awaitNetwork(ts *testscript.TestScript, want string) {
	runtime, done := h.dial(ts)
	defer done()
	eventually(ts, func() (bool, any) {
		status, err := runtime.Status(context.Background(), &runtimeapi.StatusRequest{Verbose: true})
		ts.Check(err)
		var config struct {
			Networks []struct{ Config struct{ Name, Source string } }
		}
		ts.Check(json.Unmarshal([]byte(status.Info["cniconfig"]), &config))
		if len(config.Networks) == 0 {
			return want == "none", "none"
		}
		network := config.Networks[0].Config
		if want == "built-in" {
			return network.Name != "other", network
		}
		return strings.Contains(network.Source, want), network
	})
}

// endClean deletes a pod and waits until its network has nothing of it: no address lease, no rule of the packet
// filter, no record of an attachment. All of them contain the sandbox's ID, but some rules only its first half.
func (h *harness) endClean(ts *testscript.TestScript, name string) {
	runtime, done := h.dial(ts)
	defer done()
	boxes, err := runtime.ListPodSandbox(context.Background(), &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{pod.LabelPodName: name}},
	})
	ts.Check(err)
	if n, ok := ts.Value(nodeKey{}).(*node); ok && n.cluster != nil {
		kubectl(ts, false, []string{"delete", "pod", name})
	} else {
		h.berth(ts, false, []string{"delete", "pod", name})
	}
	for _, box := range boxes.Items {
		sandbox := box.Id[:len(box.Id)/2]
		eventually(ts, func() (bool, any) {
			left, err := filepath.Glob("/var/lib/cni/results/*" + sandbox + "*")
			ts.Check(err)
			left = append(left, leasesOf(ts, sandbox)...)
			rules, err := exec.Command("nft", "list", "ruleset").Output()
			ts.Check(err)
			for rule := range strings.Lines(string(rules)) {
				if strings.Contains(rule, sandbox) {
					left = append(left, rule)
				}
			}
			return len(left) == 0, left
		})
	}
}

// leasesOf returns the files that record the addresses of a sandbox: of the built-in network, and of the CNI plugin
// host-local.
func leasesOf(ts *testscript.TestScript, sandbox string) (left []string) {
	for _, pattern := range []string{filepath.Join(rootOf(ts), "run/runtime/leases/*"), ts.MkAbs("ipam/*/*")} {
		files, err := filepath.Glob(pattern)
		ts.Check(err)
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err == nil && strings.Contains(string(text), sandbox) { // files of other pods may disappear meanwhile
				left = append(left, path)
			}
		}
	}
	return left
}

// upload posts a multipart form with a file of 64 MiB. The server may answer or close the connection before it has read
// all of it.
func upload(ts *testscript.TestScript, args []string) {
	const size = 64 << 20
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	part, err := w.CreateFormFile("file", "zeros")
	ts.Check(err)
	_, err = part.Write(make([]byte, size))
	ts.Check(errors.Join(err, w.Close()))
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Post(args[0], w.FormDataContentType(), &form)
	if failed, ok := errors.AsType[*net.OpError](err); ok && failed.Op == "dial" {
		ts.Fatalf("%v", err)
	}
	if err != nil {
		ts.Logf("POST %s: %v", args[0], err)
		return
	}
	ts.Logf("POST %s: %s", args[0], answer.Status)
	_ = answer.Body.Close()
}

// connections opens as many connections to an address as one client may have. It fails unless the server closes one
// more, and serves another client meanwhile.
func connections(ts *testscript.TestScript, args []string) {
	most, err := strconv.Atoi(args[1])
	ts.Check(err)
	end, err := limittest.Fill(context.Background(), args[0], most)
	ts.Check(err)
	defer end()
	answer, err := limittest.Another().Get("http://" + args[0] + args[2])
	ts.Check(err)
	ts.Check(answer.Body.Close())
	if answer.StatusCode != http.StatusOK {
		ts.Fatalf("another client gets %s", answer.Status)
	}
}
