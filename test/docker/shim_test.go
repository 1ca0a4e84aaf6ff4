package docker

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/docker/dockertest"
	"github.com/berth-run/berth/test/containerd"
	"github.com/berth-run/berth/test/image"
)

const (
	shimBridge  = "berth-shim-test"
	shimNetwork = `{"cniVersion": "1.0.0", "name": "shim", "plugins": [{"type": "bridge", "bridge": %q,
  "isGateway": true, "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.206.0.0/24"}]]}}]}`
)

// berth docker-shim serves any client of the CRI on its socket. Pods have the network of a CNI configuration, run on
// while no shim runs, and leave no address behind.
func TestShimProgram(t *testing.T) {
	bin, err := filepath.Abs("../../bin/berth")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bin); err != nil {
		t.Skipf("%v: run make build", err)
	}
	archive, err := image.Build(t.Context(), t.TempDir(), workload)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{daemon: dockertest.Start(t, archive), dir: t.TempDir()}
	parts := filepath.Join(n.dir, "parts")
	if err := os.MkdirAll(parts, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := containerd.Build(t.Context(), parts, "../../tools", archive); err != nil {
		t.Fatal(err)
	}
	conf, ipam := filepath.Join(n.dir, "net.d"), filepath.Join(n.dir, "ipam")
	if err := os.MkdirAll(conf, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(conf, "10-shim.conflist"), fmt.Appendf(nil, shimNetwork, shimBridge, ipam),
		0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(filepath.Dir(n.daemon.Socket()), "shim.sock")
	launch := func() (stop func()) {
		cmd := exec.CommandContext(context.Background(), bin, "docker-shim", "--listen", "unix://"+socket,
			"--docker-endpoint", n.daemon.Endpoint(), "--cni-conf-dir", conf, "--cni-bin-dir",
			filepath.Join(parts, "cni"), "--cni-cache-dir", filepath.Join(n.dir, "cache"), "--state-dir",
			filepath.Join(n.dir, "state"))
		cmd.Stderr = t.Output()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
				t.Error(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("the shim ended: %v", err)
			}
		}
	}
	stop := launch()
	t.Cleanup(func() { stop() })
	t.Cleanup(func() { _ = exec.CommandContext(context.Background(), "ip", "link", "del", shimBridge).Run() })
	client, err := cri.New("unix://"+socket, cri.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	n.Client = client
	answers := func() bool { _, err := client.Verify(t.Context()); return err == nil }
	n.eventually(t, "the shim answers", answers)

	pod := n.pod("shim")
	sandbox := n.run(t, pod)
	config := workloadOf("c", "print", "ready", "then", "sleep")
	id := n.create(t, sandbox, pod, config)
	n.startContainer(t, id)
	n.awaitLine(t, pod, config, "ready")
	ip := n.sandboxOf(t, sandbox).Network.GetIp()
	if !strings.HasPrefix(ip, "10.206.0.") {
		t.Errorf("address %q", ip)
	}
	got, err := client.Runtime.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id,
		Cmd: []string{"/workload", "print", "hello"}, Timeout: 30})
	if err != nil || string(got.Stdout) != "hello\n" {
		t.Errorf("exec: %s, %v", got, err)
	}

	stop()
	stop = launch()
	n.eventually(t, "the next shim answers", answers)
	if again := n.sandboxOf(t, sandbox); again.Network.GetIp() != ip {
		t.Errorf("address %q of the pod after a restart of the shim, before %q", again.Network.GetIp(), ip)
	}
	if c := n.container(t, id); c.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the container: %s", c)
	}
	if _, err := client.Runtime.StopPodSandbox(t.Context(),
		&runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox}); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(ipam, "shim", "10.*")); len(left) > 0 {
		t.Errorf("addresses left: %q", left)
	}
}
