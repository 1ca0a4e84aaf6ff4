package runtime_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/eventually"
)

const (
	// stockEnv makes serve start pods with pause containers and a shim each, as earlier versions did.
	stockEnv  = "BERTH_TEST_STOCK"
	pauseName = "localhost/berth-pause:0123"
)

// stockShim is the path of the shim of earlier versions in a directory of a runtime.
func stockShim(dir string) string { return filepath.Join(dir, "stock", "containerd-shim-runc-v2") }

// buildStockShim builds the shim of earlier versions.
func buildStockShim(t *testing.T, dir string) {
	t.Helper()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", stockShim(dir), "./testdata/shim")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build shim of earlier versions: %v\n%s", err, out)
	}
}

// writePause adds to dir the archive of an image that sleeps, for pause containers.
func writePause(t *testing.T, dir string) {
	t.Helper()
	workload, err := tarball.ImageFromPath(filepath.Join(dir, archiveName), nil)
	if err != nil {
		t.Fatal(err)
	}
	pause, err := mutate.Config(workload, v1.Config{Entrypoint: []string{"/workload", "sleep"}})
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(pauseName)
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(filepath.Join(dir, "pause.tar"), tag, pause); err != nil {
		t.Fatal(err)
	}
}

// An earlier version has pause containers and a shim for each pod. Its pods run on after an upgrade, and can be used
// and removed as before. A container that ended meanwhile has its exit code. New pods have holders and the node's shim.
func TestUpgradeFromStock(t *testing.T) {
	dir := scratchWithImage(t)
	writePause(t, dir)
	buildStockShim(t, dir)
	confs := filepath.Join(dir, "net.d")
	placePluginNetwork(t, dir, confs)
	t.Setenv(stockEnv, "1")
	agent := serveChild(t, dir, selfPath)
	t.Cleanup(func() { kill(t, agent) })
	c := newClient(t, dial(t, dir), dir)
	before, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("before"),
		PortMappings: []*cri.PortMapping{{Protocol: cri.Protocol_TCP, ContainerPort: 8080, HostPort: 28088}}})
	c.container(t, before, pod, "serving", "serve")
	n := networks{c, dir}
	n.answers(t, before, "10.202.0.", 28088)
	address := n.address(t, before)
	staying := c.container(t, before, pod, "staying", "print", "up", "then", "sleep", "7")
	leaving := c.container(t, before, pod, "leaving", "print", "up", "then", "sleep", "5")
	for _, name := range []string{"staying", "leaving"} {
		eventually.True(t, "container "+name+" runs",
			func() bool { return strings.Contains(readFile(filepath.Join(dir, "logs", name+".log")), "up") })
	}
	pid, leavingPID := c.pid(t, staying), c.pid(t, leaving)
	if got := runningPrograms(dir, "containerd-shim-runc-v2"); got != 1 {
		t.Fatalf("the version before has %d shims of its pod", got)
	}

	kill(t, agent)
	if err := unix.Kill(leavingPID, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	upgradeStockShim(t, dir)
	if err := os.RemoveAll(confs); err != nil {
		t.Fatal(err)
	}
	if err := os.Unsetenv(stockEnv); err != nil {
		t.Fatal(err)
	}
	agent = serveChild(t, dir, selfPath)
	if code := c.exitCode(t, leaving); code != 5 {
		t.Errorf("exit code of a container that ended during the upgrade: %d, want 5", code)
	}
	status := c.status(t, staying)
	if status.State != cri.ContainerState_CONTAINER_RUNNING || c.pid(t, staying) != pid {
		t.Errorf("container after the upgrade: %v, pid %d, had %d", status, c.pid(t, staying), pid)
	}
	if _, err := c.ExecSync(t.Context(),
		&cri.ExecSyncRequest{ContainerId: staying, Cmd: []string{"/workload", "true"}}); err != nil {
		t.Error(err)
	}
	if code := c.exitCode(t, c.container(t, before, pod, "next", "true")); code != 0 {
		t.Errorf("a new container of the pod from before exited with %d", code)
	}
	n.answers(t, before, "10.202.0.", 28088)
	after, afterPod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("after")})
	if was, is := address, n.address(t, after); n.address(t, before) != was || is == was {
		t.Errorf("the pod from before has address %s, had %s; a new pod has %s", n.address(t, before), was, is)
	}
	if code := c.exitCode(t, c.container(t, after, afterPod, "main", "true")); code != 0 {
		t.Errorf("a container of a new pod exited with %d", code)
	}
	if got := runningPrograms(dir, "holder"); got != 1 {
		t.Errorf("%d holders run, want one for the new pod", got)
	}
	if _, err := c.StopContainer(t.Context(),
		&cri.StopContainerRequest{ContainerId: staying, Timeout: 5}); err != nil {
		t.Error(err)
	}
	if code := c.exitCode(t, staying); code != 7 {
		t.Errorf("exit code of a container from before, stopped after the upgrade: %d, want 7", code)
	}
	n.end(t, before)
	left, err := exec.CommandContext(t.Context(), "sh", "-c", "iptables-save; ip6tables-save").Output()
	if err != nil || strings.Contains(string(left), before[:len(before)/2]) {
		t.Errorf("the pod from before has left rules of iptables, %v:\n%s", err, left)
	}
	c.removeAll(t)
	if !c.hasImage(t, pauseName) {
		t.Error("the pause image is gone, and earlier versions' pods may still need it")
	}
	kill(t, agent)
	agent = serveChild(t, dir, selfPath)
	eventually.True(t, "the pause image is gone after the last pod of the version before",
		func() bool { return !c.hasImage(t, pauseName) })
	removeNetwork(t, dir)
}

// placePluginNetwork adds a CNI configuration that makes the built-in network as versions before did: on the same
// bridge, by CNI plugins and iptables.
func placePluginNetwork(t *testing.T, dir, confs string) {
	t.Helper()
	const list = `{"cniVersion": "1.0.0", "name": "berthrt0", "plugins": [
 {"type": "bridge", "bridge": "berthrt0", "isGateway": true, "ipMasq": true, "ipMasqBackend": "iptables",
  "hairpinMode": true, "ipam": {"type": "host-local", "dataDir": %q, "ranges":
   [[{"subnet": "10.202.0.0/24"}], [{"subnet": "fd62:6572:7468:202::/64"}]],
   "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}},
 {"type": "portmap", "backend": "iptables", "snat": true, "capabilities": {"portMappings": true}}]}`
	if err := os.MkdirAll(confs, 0o755); err != nil {
		t.Fatal(err)
	}
	text := fmt.Appendf(nil, list, filepath.Join(dir, "state", "ipam"))
	if err := os.WriteFile(filepath.Join(confs, "10-berth.conflist"), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (c *client) hasImage(t *testing.T, name string) bool {
	t.Helper()
	response, err := c.images.ImageStatus(t.Context(),
		&cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}})
	if err != nil {
		t.Fatal(err)
	}
	return response.Image != nil
}

// upgradeStockShim replaces the program of the stock shims that run by the installed one: containerd executes it to
// remove what a shim has left.
func upgradeStockShim(t *testing.T, dir string) {
	t.Helper()
	if err := os.Rename(stockShim(dir), stockShim(dir)+"-before"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "root", "bin", filepath.Base(stockShim(dir))), stockShim(dir)); err != nil {
		t.Fatal(err)
	}
}

// runningPrograms counts the processes of a runtime whose program's file has a prefix.
func runningPrograms(dir, prefix string) (count int) {
	for _, program := range running(dir) {
		if strings.HasPrefix(filepath.Base(program), prefix) {
			count++
		}
	}
	return count
}
