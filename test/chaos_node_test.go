package test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/test/containerd"
)

// campaign is an agent for a test that disturbs it for a while, with a root directory, cgroup, bridge and addresses of
// its own. At the end of the test everything of it is removed from the machine.
type campaign struct {
	t        *testing.T
	bin      string
	root     string
	place    int
	external *containerd.Daemon // nil with the embedded runtime
	cri      runtimeapi.RuntimeServiceClient
	agent    *exec.Cmd // nil unless it runs
}

// newCampaign makes a campaign on the runtime "embedded" or "containerd". The text of config extends its
// configuration. The agent does not run yet.
func newCampaign(t *testing.T, runtime, config string) *campaign {
	t.Helper()
	bin, err := filepath.Abs("../bin/berth")
	check(t, err)
	root, err := os.MkdirTemp("", "b") // short: unix sockets lie below it
	check(t, err)
	check(t, os.Chmod(root, 0o711)) // pods that run as other users need to pass through it
	c := &campaign{t: t, bin: bin, root: root, place: claimed(t)}
	endpoint, socket := "embedded", "unix://"+filepath.Join(root, "cri.sock")
	if runtime == "containerd" {
		c.startExternal()
		endpoint, socket = c.external.Endpoint(), c.external.Endpoint()
	}
	conn, err := grpc.NewClient(socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(t, err)
	t.Cleanup(func() { check(t, conn.Close()) })
	c.cri = runtimeapi.NewRuntimeServiceClient(conn)
	check(t, os.Mkdir(filepath.Join(root, "manifests"), 0o755))
	text := fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
podLogsDir: %[1]s/logs
podCIDR: "%[2]s0/24"
cgroupRoot: /berth-test-%[3]d
containerRuntimeEndpoint: %[4]q
evictionHard: {memory.available: 50Mi}
crashLoopBackOff: {maxContainerRestartPeriod: 2s}
`, root, c.addresses(), c.place, endpoint)
	check(t, os.WriteFile(c.config(), []byte(text+config), 0o644))
	t.Cleanup(func() {
		c.kill()
		for _, leftover := range kill(c.bin, root) {
			t.Errorf("a process was left: %s", leftover)
		}
		if out, err := exec.Command(bin, "reset", "--yes", "--root-dir", root, "--config",
			c.config()).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	return c
}

// startExternal starts a containerd with a network of the same addresses.
func (c *campaign) startExternal() {
	archive, err := filepath.Abs("../bin/workload.tar")
	check(c.t, err)
	parts, err := containerd.Build(c.t.Context(), c.t.TempDir(), "../tools", archive)
	check(c.t, err)
	dir, err := os.MkdirTemp("", "bc")
	check(c.t, err)
	c.external, err = containerd.New(context.Background(), containerd.Options{Parts: parts, Dir: dir,
		Bridge: fmt.Sprintf("berth-test%d", c.place), Subnet: c.addresses() + "0/24"})
	check(c.t, err)
	c.t.Cleanup(func() {
		check(c.t, c.external.Close())
		kill("containerd-shim", dir) // a containerd that is killed while it starts a shim forgets the shim
	})
}

func (c *campaign) config() string { return filepath.Join(c.root, "config.yaml") }

// addresses returns the first three bytes of the addresses of the pods, with a dot after each.
func (c *campaign) addresses() string { return fmt.Sprintf("10.203.%d.", c.place) }

func (c *campaign) client() *client.Client { return client.New(filepath.Join(c.root, "berth.sock")) }

// start starts the agent and does not wait until it answers.
func (c *campaign) start() {
	log, err := os.OpenFile(filepath.Join(c.root, "agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	check(c.t, err)
	defer log.Close()
	c.agent = exec.Command(c.bin, "agent", "--root-dir", c.root, "--hostname-override", "node1", "--config",
		c.config(), "--cri-listen", "unix://"+filepath.Join(c.root, "cri.sock"))
	if c.external != nil {
		c.agent.Args = c.agent.Args[:len(c.agent.Args)-2]
	}
	c.agent.Stdout, c.agent.Stderr = log, log
	check(c.t, c.agent.Start())
}

// load loads the image of the tests into the embedded runtime; the external one has it.
func (c *campaign) load() {
	if c.external != nil {
		return
	}
	out, err := exec.Command(c.bin, "--root-dir", c.root, "image", "load", "../bin/workload.tar").CombinedOutput()
	if err != nil {
		c.t.Fatalf("%v\n%s", err, out)
	}
}

// kill ends the agent with SIGKILL.
func (c *campaign) kill() {
	if c.agent != nil {
		_ = c.agent.Process.Kill()
		_ = c.agent.Wait() // it was killed
		c.agent = nil
	}
}

// log returns the end of the agent's log.
func (c *campaign) log() string {
	text, _ := os.ReadFile(filepath.Join(c.root, "agent.log"))
	return string(text[max(0, len(text)-12000):])
}

// links counts the network interfaces of pods that are attached to the campaign's bridge.
func (c *campaign) links() (names []string) {
	all, err := net.Interfaces()
	check(c.t, err)
	for _, i := range all {
		master, err := os.Readlink(filepath.Join("/sys/class/net", i.Name, "master"))
		if err != nil {
			continue
		}
		bridge, err := net.InterfaceByName(filepath.Base(master))
		if err != nil {
			continue
		}
		addresses, _ := bridge.Addrs()
		for _, a := range addresses {
			if strings.HasPrefix(a.String(), c.addresses()) {
				names = append(names, i.Name)
			}
		}
	}
	return names
}
