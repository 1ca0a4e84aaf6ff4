package critest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/cri/critest"
)

const (
	pause       = "berth.test/pause:1"
	startWithin = time.Minute
)

// containerdConfig is for containerd 1.6 (version 2 of the file), which has no
// network of its own and pulls its pause image unless it is told another.
const containerdConfig = `version = 2
root = %[1]q
state = %[2]q
[grpc]
  address = %[3]q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + pause + `"
  stream_server_port = "0"
  restrict_oom_score_adj = true
  tolerate_missing_hugetlb_controller = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %[4]q
    conf_dir = %[5]q
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
`

const cniConfig = `{
  "cniVersion": "1.0.0", "name": "critest",
  "plugins": [{
    "type": "bridge", "bridge": "critest1", "isGateway": true, "hairpinMode": true,
    "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.204.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}
  }]
}`

// TestContainerd runs the machine's own containerd on directories of the test.
func TestContainerd(t *testing.T) {
	if _, err := exec.LookPath("containerd"); err != nil {
		t.Skip("containerd is not installed")
	}
	critest.Suite(t, func(t *testing.T) critest.Env {
		dir := scratch(t)
		cgroup := cgroupParent(t)
		socket := filepath.Join(dir, "containerd.sock")
		at := func(name string) string { return filepath.Join(dir, name) }
		write(t, at("config.toml"), containerdConfig, at("root"), at("state"), socket, at("cni"), at("net.d"))
		write(t, at("net.d/10-critest.conflist"), cniConfig, at("ipam"))
		buildPlugins(t, at("cni"))
		startContainerd(t, at("config.toml"))
		client := dial(t, socket)
		archive := buildImage(t, dir)
		for _, archive := range []string{archive, buildPause(t, archive, at("pause.tar"))} {
			command(t, "ctr", "--address", socket, "--namespace", "k8s.io", "images", "import", archive)
		}
		awaitImages(t, client, workload, pause)
		return critest.Env{Client: client, Image: workload, Logs: at("logs"), CgroupParent: cgroup, Processes: true}
	})
}

func write(t *testing.T, path, format string, args ...any) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, fmt.Appendf(nil, format, args...), 0o644); err != nil {
		t.Fatal(err)
	}
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}

// buildPlugins makes the CNI plugins that the configuration names, and loopback,
// which containerd 1.6 runs for every pod.
func buildPlugins(t *testing.T, dir string) {
	t.Helper()
	const plugins = "github.com/containernetworking/plugins/plugins/"
	command(t, "go", "build", "-C", "../../../tools", "-o", dir+"/", plugins+"main/bridge", plugins+"main/loopback", plugins+"ipam/host-local")
	t.Cleanup(func() {
		link, err := netlink.LinkByName("critest1")
		if err == nil {
			err = netlink.LinkDel(link)
		}
		if err != nil && !errors.As(err, new(netlink.LinkNotFoundError)) {
			t.Error(err)
		}
	})
}

func startContainerd(t *testing.T, config string) {
	t.Helper()
	daemon := exec.Command("containerd", "--config", config)
	daemon.Stdout, daemon.Stderr = os.Stderr, os.Stderr
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(daemon.Process.Signal(unix.SIGTERM), daemon.Wait()); err != nil {
			t.Error(err)
		}
	})
}

// dial waits until containerd serves.
func dial(t *testing.T, socket string) *cri.Client {
	t.Helper()
	client, err := cri.New("unix://"+socket, cri.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), startWithin)
	defer cancel()
	for tick := time.NewTicker(50 * time.Millisecond); ; <-tick.C {
		if _, err = client.Verify(ctx); err == nil {
			return client
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// awaitImages waits until the CRI plugin has heard of what ctr imported.
func awaitImages(t *testing.T, client *cri.Client, refs ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startWithin)
	defer cancel()
	for _, ref := range refs {
		for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
			resp, err := client.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
			if err != nil {
				t.Fatal(err)
			}
			if resp.Image != nil {
				break
			}
		}
	}
}

// buildPause makes an image that sleeps out of the workload's.
func buildPause(t *testing.T, archive, path string) string {
	t.Helper()
	image, err := tarball.ImageFromPath(archive, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.Config.Cmd = []string{"sleep"}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(pause)
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(path, tag, image); err != nil {
		t.Fatal(err)
	}
	return path
}
