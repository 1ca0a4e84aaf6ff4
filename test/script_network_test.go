package test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/vishvananda/netlink"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/pod"
)

// otherNetwork is configuration as a cluster's network puts it on a node.
const otherNetwork = `{"cniVersion": "1.0.0", "name": "other", "plugins": [
 {"type": "bridge", "bridge": %q, "isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables", "ipam":
  {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.204.%d.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
 {"type": "portmap", "backend": "nftables", "snat": true, "capabilities": {"portMappings": true}}]}`

// cni changes the machine's CNI configuration, which is in net.d of a script's directory.
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

// awaitNetwork waits until the runtime gives pods that start this network; none is
// when it has none.
func (h *harness) awaitNetwork(ts *testscript.TestScript, want string) {
	runtime, done := h.dial(ts)
	defer done()
	eventually(ts, func() (bool, any) {
		status, err := runtime.Status(context.Background(), &runtimeapi.StatusRequest{Verbose: true})
		ts.Check(err)
		var config struct {
			Networks []struct{ Config struct{ Name string } }
		}
		ts.Check(json.Unmarshal([]byte(status.Info["cniconfig"]), &config))
		network := "none"
		if len(config.Networks) > 0 && config.Networks[0].Config.Name == "other" {
			network = "other"
		} else if len(config.Networks) > 0 {
			network = "built-in"
		}
		return network == want, network
	})
}

// endClean deletes a pod and finds what is left on its network: a lease, a rule of the
// packet filter, the record of an attachment. All name the sandbox, rules in part.
func (h *harness) endClean(ts *testscript.TestScript, name string) {
	runtime, done := h.dial(ts)
	defer done()
	boxes, err := runtime.ListPodSandbox(context.Background(), &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{pod.LabelPodName: name}},
	})
	ts.Check(err)
	h.berth(ts, false, []string{"delete", "pod", name})
	h.awaitEnded(ts, []string{name})
	for _, box := range boxes.Items {
		sandbox := box.Id[:len(box.Id)/2]
		rules, err := exec.Command("nft", "list", "ruleset").Output()
		ts.Check(err)
		records, err := filepath.Glob("/var/lib/cni/results/*" + sandbox + "*")
		ts.Check(err)
		left := append(records, leasesOf(ts, sandbox)...)
		if len(left) > 0 || strings.Contains(string(rules), sandbox) {
			fail(ts, "of sandbox %s is left: %q, and in the rules:\n%s", box.Id, left, rules)
		}
	}
}

// leasesOf are the files in which the plugin host-local has addresses of a sandbox.
func leasesOf(ts *testscript.TestScript, sandbox string) (left []string) {
	for _, pattern := range []string{filepath.Join(rootOf(ts), "run/runtime/ipam/*/*"), ts.MkAbs("ipam/*/*")} {
		files, err := filepath.Glob(pattern)
		ts.Check(err)
		for _, path := range files {
			if strings.Contains(ts.ReadFile(path), sandbox) {
				left = append(left, path)
			}
		}
	}
	return left
}
