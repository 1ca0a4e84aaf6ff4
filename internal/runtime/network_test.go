package runtime_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/eventually"
)

// otherNetwork is a CNI configuration, such as a network plugin of a cluster installs.
const (
	otherBridge  = "berthrt1"
	otherNetwork = `{"cniVersion": "1.0.0", "name": "other", "plugins": [
 {"type": "bridge", "bridge": %q, "isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables",
  "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.204.0.0/24"}]],
   "routes": [{"dst": "0.0.0.0/0"}]}},
 {"type": "portmap", "backend": "nftables", "snat": true, "capabilities": {"portMappings": true}}]}`
)

// networks tests a runtime whose network changes.
type networks struct {
	*client
	dir string
}

// testCNI adds and removes a CNI configuration. New pods get its network, running pods keep their network, and ended
// pods leave nothing behind.
func testCNI(t *testing.T, c *client, dir string) {
	n := networks{c, dir}
	t.Cleanup(func() {
		if link, err := netlink.LinkByName(otherBridge); err == nil {
			_ = netlink.LinkDel(link)
		}
	})
	confs := filepath.Join(dir, "net.d")
	first := n.serve(t, "first", 28081)
	for _, round := range []string{"2", "3"} { // also after the directory was removed
		if err := os.Mkdir(confs, 0o755); err != nil {
			t.Fatal(err)
		}
		text := fmt.Appendf(nil, otherNetwork, otherBridge, n.leases("other"))
		if err := os.WriteFile(filepath.Join(confs, "10-other.conflist"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		n.await(t, "other")
		other := n.serve(t, "other"+round, 28082)
		n.answers(t, first, "10.202.0.", 28081)
		n.answers(t, other, "10.204.0.", 28082)
		n.end(t, first)
		if err := os.RemoveAll(confs); err != nil {
			t.Fatal(err)
		}
		n.await(t, "berthrt0")
		first = n.serve(t, "first"+round, 28081)
		n.answers(t, first, "10.202.0.", 28081)
		n.answers(t, other, "10.204.0.", 28082)
		n.end(t, other)
	}
	n.end(t, first)
}

// testRanges changes the node's address ranges while pods run.
func testRanges(t *testing.T, c *client, dir string) {
	n := networks{c, dir}
	before := n.serve(t, "before", 28083)
	_, err := c.UpdateRuntimeConfig(t.Context(), &cri.UpdateRuntimeConfigRequest{RuntimeConfig: &cri.RuntimeConfig{
		NetworkConfig: &cri.NetworkConfig{PodCidr: "10.205.0.0/24,fd62:6572:7468:205::/64"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	after := n.serve(t, "after", 28084)
	n.answers(t, before, "10.202.0.", 28083)
	n.answers(t, after, "10.205.0.", 28084)
	n.end(t, before)
	n.answers(t, after, "10.205.0.", 28084)
	n.end(t, after)
}

// testLostNamespace ends a pod whose network namespace was unmounted. CNI plugins then leave their rules.
func testLostNamespace(t *testing.T, c *client, dir string) {
	n := networks{c, dir}
	id := n.serve(t, "lost", 28085)
	n.answers(t, id, "10.202.0.", 28085)
	n.loseNamespace(t, id)
	n.end(t, id)
}

// loseNamespace unmounts the network namespace of a sandbox.
func (n networks) loseNamespace(t *testing.T, id string) {
	t.Helper()
	status, err := n.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	at := regexp.MustCompile(`"([^"]*/netns/[^"]*)"`).FindStringSubmatch(status.Info["info"])
	if at == nil {
		t.Fatalf("no network namespace: %s", status.Info["info"])
	}
	if err := errors.Join(unix.Unmount(at[1], unix.MNT_DETACH), os.Remove(at[1])); err != nil {
		t.Fatal(err)
	}
}

// testLocalnet starts and ends pods with host ports. The bridge routes packets of loopback addresses only while a pod
// needs it.
func testLocalnet(t *testing.T, c *client, dir string) {
	n := networks{c, dir}
	localnet := func(want string) {
		t.Helper()
		value, err := os.ReadFile("/proc/sys/net/ipv4/conf/berthrt0/route_localnet")
		if got := strings.TrimSpace(string(value)); err != nil || got != want {
			t.Errorf("route_localnet is %q, %v; want %s", got, err, want)
		}
	}
	localnet("0")
	one, two := n.serve(t, "one", 28086), n.serve(t, "two", 28087)
	n.answers(t, one, "10.202.0.", 28086)
	localnet("1")
	n.end(t, one)
	localnet("1")
	n.answers(t, two, "10.202.0.", 28087)
	n.end(t, two)
	localnet("0")
}

func (n networks) leases(network string) string {
	if network == "other" {
		return filepath.Join(n.dir, "ipam")
	}
	return filepath.Join(n.dir, "state", "ipam")
}

// await waits until new pods get the named network. The runtime must report its network as ready all the time.
func (n networks) await(t *testing.T, name string) {
	t.Helper()
	eventually.True(t, "the network is "+name, func() bool {
		response, err := n.Status(t.Context(), &cri.StatusRequest{Verbose: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, condition := range response.Status.Conditions {
			if condition.Type == "NetworkReady" && !condition.Status {
				t.Errorf("%s is false: %s", condition.Type, condition.Message)
			}
		}
		return strings.Contains(response.Info["cniconfig"], fmt.Sprintf(`"Name":%q`, name))
	})
}

// serve starts a pod that answers on its port 8080 and on hostPort of the host.
func (n networks) serve(t *testing.T, name string, hostPort int32) string {
	t.Helper()
	id, pod := n.sandbox(t, &cri.PodSandboxConfig{
		Metadata:     meta(name),
		PortMappings: []*cri.PortMapping{{Protocol: cri.Protocol_TCP, ContainerPort: 8080, HostPort: hostPort}},
	})
	n.container(t, id, pod, name, "serve")
	return id
}

func (n networks) address(t *testing.T, id string) string {
	t.Helper()
	status, err := n.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		t.Fatal(err)
	}
	return status.Status.Network.GetIp()
}

// answers fails the test unless a pod has an address with the prefix and can be reached at it and at its host port.
func (n networks) answers(t *testing.T, id, prefix string, hostPort int) {
	t.Helper()
	at := n.address(t, id)
	if !strings.HasPrefix(at, prefix) {
		t.Fatalf("the pod's address is %s, want %s*", at, prefix)
	}
	for _, url := range []string{"http://" + net.JoinHostPort(at, "8080") + "/",
		fmt.Sprintf("http://127.0.0.1:%d/", hostPort)} {
		eventually.True(t, url+" answers", func() bool { return get(url) != "" })
	}
}

// end ends a pod and checks that it leaves nothing: no address in use, no device, no rule or element of the packet
// filter, no record of its attachment.
func (n networks) end(t *testing.T, id string) {
	t.Helper()
	if _, err := n.StopPodSandbox(t.Context(), &cri.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.RemovePodSandbox(t.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob("/var/lib/cni/results/*" + id + "*"); len(left) > 0 {
		t.Errorf("the pod has left %v", left)
	}
	if left, _ := filepath.Glob(filepath.Join(n.dir, "state", "leases", "*"+id+"*")); len(left) > 0 {
		t.Errorf("the pod has left %v", left)
	}
	if links, err := exec.CommandContext(t.Context(), "ip", "link").Output(); err != nil ||
		strings.Contains(string(links), id) { // the device's alias has it
		t.Errorf("the pod has left a device, %v:\n%s", err, links)
	}
	for _, network := range []string{"berthrt0", "other"} {
		leases, _ := filepath.Glob(filepath.Join(n.leases(network), "*", "*"))
		for _, path := range leases {
			if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), id) {
				t.Errorf("the pod has left %s", path)
			}
		}
	}
	rules, err := exec.CommandContext(t.Context(), "nft", "list", "ruleset").Output()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(rules), id[:len(id)/2]) { // comments of some rules are cut
		t.Errorf("rules for the pod %s are left", id)
	}
}
