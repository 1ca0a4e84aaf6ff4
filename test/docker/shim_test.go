package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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

// program is the shim as a program of its own, with a CNI configuration.
type program struct {
	*node
	bin, socket       string
	conf, plugins     string
	ipam, cache, root string
	cmd               *exec.Cmd // nil while it does not run
}

// newProgram starts a dockerd, and the program on it.
func newProgram(t *testing.T) *program {
	t.Helper()
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
	p := &program{node: &node{daemon: dockertest.Start(t, archive), dir: t.TempDir()}, bin: bin}
	p.socket = filepath.Join(filepath.Dir(p.daemon.Socket()), "shim.sock")
	p.conf, p.ipam, p.cache = filepath.Join(p.dir, "net.d"), filepath.Join(p.dir, "ipam"), filepath.Join(p.dir, "cache")
	p.root = filepath.Join(p.dir, "cri-dockerd")
	parts := filepath.Join(p.dir, "parts")
	p.plugins = filepath.Join(parts, "cni")
	if err := errors.Join(os.MkdirAll(parts, 0o755), os.MkdirAll(p.conf, 0o755),
		os.WriteFile(filepath.Join(p.conf, "10-shim.conflist"), fmt.Appendf(nil, shimNetwork, shimBridge, p.ipam),
			0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := containerd.Build(t.Context(), parts, "../../tools", archive); err != nil {
		t.Fatal(err)
	}
	p.Client, err = cri.New("unix://"+p.socket, cri.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Client.Close() })
	t.Cleanup(func() { _ = exec.CommandContext(context.Background(), "ip", "link", "del", shimBridge).Run() })
	p.launch(t)
	t.Cleanup(func() { p.end(t) })
	return p
}

// launch starts the program, and waits until it answers.
func (p *program) launch(t *testing.T) {
	t.Helper()
	p.cmd = exec.CommandContext(context.Background(), p.bin, "docker-shim", "--listen", "unix://"+p.socket,
		"--docker-endpoint", p.daemon.Endpoint(), "--cni-conf-dir", p.conf, "--cni-bin-dir", p.plugins,
		"--cni-cache-dir", p.cache, "--cri-dockerd-root-directory", p.root, "--state-dir",
		filepath.Join(p.dir, "state"))
	p.cmd.Stderr = t.Output()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.eventually(t, "the shim answers", func() bool { _, err := p.Verify(t.Context()); return err == nil })
}

// end ends the program with SIGTERM.
func (p *program) end(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("the shim ended: %v", err)
	}
}

// kill ends the program with SIGKILL.
func (p *program) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait() // the error says that the signal ended it
}

// leases lists the addresses that pods have.
func (p *program) leases() []string {
	all, _ := filepath.Glob(filepath.Join(p.ipam, "shim", "10.*"))
	return all
}

// berth docker-shim serves any client of the CRI on its socket. Pods have the network of a CNI configuration, run on
// while no shim runs, and leave no address behind.
func TestShimProgramServesTheCRI(t *testing.T) {
	p := newProgram(t)
	pod := p.pod("shim")
	sandbox := p.run(t, pod)
	config := workloadOf("c", "print", "ready", "then", "sleep")
	id := p.launchContainer(t, sandbox, pod, config, "ready")
	ip := p.sandboxOf(t, sandbox).Network.GetIp()
	if !strings.HasPrefix(ip, "10.206.0.") {
		t.Errorf("address %q", ip)
	}
	got, err := p.Runtime.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id,
		Cmd: []string{"/workload", "print", "hello"}, Timeout: 30})
	if err != nil || string(got.Stdout) != "hello\n" {
		t.Errorf("exec: %s, %v", got, err)
	}

	p.end(t)
	p.launch(t)
	if again := p.sandboxOf(t, sandbox); again.Network.GetIp() != ip {
		t.Errorf("address %q of the pod after a restart of the shim, before %q", again.Network.GetIp(), ip)
	}
	if c := p.container(t, id); c.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the container: %s", c)
	}
	if _, err := p.Runtime.StopPodSandbox(t.Context(),
		&runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox}); err != nil {
		t.Fatal(err)
	}
	if left := p.leases(); len(left) > 0 {
		t.Errorf("addresses left: %q", left)
	}
}

// The program is killed between the creation of a container and its start, and while it stops one. The next one starts
// the container, and stops it at once although the grace period of the first stop goes on.
func TestShimProgramIsKilled(t *testing.T) {
	p := newProgram(t)
	pod := p.pod("killed")
	sandbox := p.run(t, pod)
	config := workloadOf("c", "print", "ready", "then", "stubborn")
	id := p.create(t, sandbox, pod, config)
	p.kill(t)
	p.launch(t)
	p.startContainer(t, id)
	p.awaitLine(t, pod, config, "ready")

	signalled := p.daemon.Client().Events(t.Context(), client.EventsListOptions{
		Filters: client.Filters{}.Add("container", id).Add("event", "kill")})
	stopped := make(chan error, 1)
	go func() {
		_, err := p.Runtime.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 600})
		stopped <- err
	}()
	select {
	case <-signalled.Messages:
	case err := <-signalled.Err:
		t.Fatal(err)
	}
	p.kill(t)
	if err := <-stopped; status.Code(err) != codes.Unavailable {
		t.Errorf("the stop: %v", err)
	}
	p.launch(t)
	if c := p.container(t, id); c.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the container: %s", c)
	}
	if _, err := p.Runtime.StopPodSandbox(t.Context(),
		&runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox}); err != nil {
		t.Fatal(err)
	}
	if c := p.container(t, id); c.State != runtimeapi.ContainerState_CONTAINER_EXITED || c.ExitCode != 137 {
		t.Errorf("the container after the end of its pod: %s", c)
	}
	if got := lines(t, pod, config); !slices.Equal(got, []string{"ready"}) {
		t.Errorf("its log: %q", got)
	}
}

// The Engine has lost two sandboxes of cri-dockerd. One has ended: the shim finds it by its checkpoint, frees its
// address and removes the checkpoint. The namespace of the other one exists, so it may belong to another Engine: it
// stays.
func TestCheckpointsOfCRIDockerd(t *testing.T) {
	p := newProgram(t)
	p.end(t)
	namespace := func() (*exec.Cmd, string) {
		cmd := exec.CommandContext(context.Background(), "sleep", "600")
		cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid)
	}
	ended, endedPath := namespace()
	alive, alivePath := namespace()
	endedID, aliveID := strings.Repeat("ab", 32), strings.Repeat("cd", 32)
	library := libcni.NewCNIConfigWithCacheDir([]string{p.plugins}, p.cache, nil)
	list, err := libcni.NetworkConfFromFile(filepath.Join(p.conf, "10-shim.conflist"))
	if err != nil {
		t.Fatal(err)
	}
	checkpoint := func(id string) string { return filepath.Join(p.root, "sandbox", id) }
	if err := os.MkdirAll(checkpoint(""), 0o700); err != nil {
		t.Fatal(err)
	}
	for id, path := range map[string]string{endedID: endedPath, aliveID: alivePath} {
		of := &libcni.RuntimeConf{ContainerID: id, NetNS: path, IfName: "eth0"}
		if _, err := library.AddNetworkList(t.Context(), list, of); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // of the one that stays, before the program's end
			if err := library.DelNetworkList(context.Background(), list, of); err != nil {
				t.Error(err)
			}
		})
		if err := os.WriteFile(checkpoint(id), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		_ = alive.Process.Kill()
		_ = alive.Wait()
	})
	if err := ended.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = ended.Wait()

	p.launch(t)
	p.eventually(t, "one address is free", func() bool { return len(p.leases()) == 1 })
	p.eventually(t, "the checkpoint is removed", func() bool {
		_, err := os.Stat(checkpoint(endedID))
		return errors.Is(err, fs.ErrNotExist)
	})
	if _, err := os.Stat(checkpoint(aliveID)); err != nil {
		t.Errorf("the checkpoint of the sandbox whose namespace exists: %v", err)
	}
}
