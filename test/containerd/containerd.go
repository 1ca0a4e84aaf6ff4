// Package containerd runs the machine's own containerd for tests, in a separate directory and with a separate
// network.
package containerd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri"
	pauseimage "github.com/berth-run/berth/internal/runtime/pause"
)

const pause = "berth.test/pause:1"

// configText configures containerd 1.6 (version 2 of the file). It names a CNI configuration, because containerd has
// no network built in, and a pause image, because containerd would pull its default one. The state of runc is in the
// daemon's directory too, because containerd would forget it there when a test kills both.
const configText = `version = 2
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
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = %[6]q
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      Root = %[7]q
      SystemdCgroup = %[8]t
`

const networkText = `{
  "cniVersion": "1.0.0", "name": "tests",
  "plugins": [{
    "type": "bridge", "bridge": %[1]q, "isGateway": true, "hairpinMode": true,
    "ipam": {"type": "host-local", "dataDir": %[2]q, "ranges": [[{"subnet": %[3]q}]], "routes": [{"dst": "0.0.0.0/0"}]}
  }, {"type": "portmap", "capabilities": {"portMappings": true}}]
}`

// Parts are the files that all daemons of a test run share.
type Parts struct {
	plugins, workload, pause string
}

// Build makes the parts in a directory: the CNI plugins, from the module in tools, and the pause image, from the
// workload's archive.
func Build(ctx context.Context, dir, tools, workload string) (Parts, error) {
	p := Parts{plugins: filepath.Join(dir, "cni"), workload: workload, pause: filepath.Join(dir, "pause.tar")}
	return p, errors.Join(buildPlugins(ctx, tools, p.plugins), buildPause(workload, p.pause))
}

// Built is Build with CNI plugins that exist already, for a machine without Go.
func Built(dir, plugins, workload string) (Parts, error) {
	p := Parts{plugins: plugins, workload: workload, pause: filepath.Join(dir, "pause.tar")}
	return p, buildPause(workload, p.pause)
}

// WithPause returns parts with the pause image of a program, such as the holder's, which needs less than the workload.
// It writes the image to a file.
func (p Parts) WithPause(program io.Reader, file string) (Parts, error) {
	archive, err := pauseimage.Archive(pause, program)
	if err != nil {
		return p, err
	}
	p.pause = file
	return p, os.WriteFile(file, archive, 0o644)
}

// Options of a Daemon.
type Options struct {
	Parts Parts
	// Dir holds all files. Its path must be short, because unix sockets lie below it.
	Dir string
	// Bridge is the name of the pod network's device, Subnet its addresses.
	Bridge, Subnet string
	// State is the directory that Daemon.State returns, by default one in Dir.
	State string
	// Systemd: systemd makes the cgroups of containers.
	Systemd bool
}

// Daemon is a running containerd.
type Daemon struct {
	opts Options
	cmd  *exec.Cmd
}

// New starts a containerd and imports the images of the workload and of the sandboxes. Its CRI service knows both.
func New(ctx context.Context, o Options) (*Daemon, error) {
	o.State = cmp.Or(o.State, filepath.Join(o.Dir, "state"))
	d := &Daemon{opts: o}
	if err := errors.Join(
		write(d.at("config.toml"), configText, d.at("root"), d.State(), d.at("c.sock"), o.Parts.plugins,
			d.at("net.d"), d.Registries(), d.at("runc"), o.Systemd),
		d.Network(true),
	); err != nil {
		return nil, err
	}
	if err := d.Start(ctx); err != nil {
		return nil, err
	}
	for _, archive := range []string{o.Parts.workload, o.Parts.pause} {
		if err := d.importImages(ctx, archive); err != nil {
			return nil, errors.Join(fmt.Errorf("import %s: %w", archive, err), d.Close())
		}
	}
	return d, nil
}

// importImages imports an archive and waits until the CRI service knows its images. The service follows the daemon's
// image store in the background, and pulls an image that it does not know yet.
func (d *Daemon) importImages(ctx context.Context, archive string) error {
	content, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(archive) })
	if err != nil {
		return err
	}
	if err := d.ctr(ctx, "images", "import", archive); err != nil {
		return err
	}
	client, err := cri.New(d.Endpoint(), cri.Options{})
	if err != nil {
		return err
	}
	known := func(ctx context.Context) (bool, error) {
		for _, image := range content {
			for _, tag := range image.RepoTags {
				resp, err := client.Images.ImageStatus(ctx,
					&runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: tag}})
				if err != nil || resp.Image == nil {
					return false, err
				}
			}
		}
		return true, nil
	}
	return errors.Join(wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Minute, true, known), client.Close())
}

// Pid is the ID of the daemon's process.
func (d *Daemon) Pid() int { return d.cmd.Process.Pid }

// Endpoint is the address where the daemon serves CRI.
func (d *Daemon) Endpoint() string { return "unix://" + filepath.Join(d.opts.Dir, "c.sock") }

// Dir is the directory with all files of the daemon.
func (d *Daemon) Dir() string { return d.opts.Dir }

// State is the directory with the daemon's files that a reboot of the machine removes. An installed containerd has
// them below /run.
func (d *Daemon) State() string { return d.opts.State }

// Registries is the directory with the configuration of registries (certs.d).
func (d *Daemon) Registries() string { return filepath.Join(d.opts.Dir, "certs.d") }

// Bridge is the name of the pod network's device.
func (d *Daemon) Bridge() string { return d.opts.Bridge }

// Start starts the daemon and waits until it answers.
func (d *Daemon) Start(ctx context.Context) error {
	d.cmd = exec.Command("containerd", "--log-level", "error", "--config", filepath.Join(d.opts.Dir, "config.toml"))
	log, err := os.OpenFile(filepath.Join(d.opts.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	d.cmd.Stdout, d.cmd.Stderr = log, log
	if err := d.cmd.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := d.ctr(ctx, "version")
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, d.Stop(unix.SIGKILL))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Stop ends the daemon with a signal; its containers run on.
func (d *Daemon) Stop(signal unix.Signal) error {
	if d.cmd == nil {
		return nil
	}
	err := d.cmd.Process.Signal(signal)
	_ = d.cmd.Wait() // the error says that the signal ended it
	d.cmd = nil
	return err
}

// Process returns the daemon's process, for package pausetest.
func (d *Daemon) Process() *os.Process { return d.cmd.Process }

// Network writes or removes the pod network's configuration. It does not rename a file into place, because
// containerd 1.6 ignores files that are moved there.
func (d *Daemon) Network(present bool) error {
	if !present {
		return os.Remove(d.at("net.d/10-tests.conflist"))
	}
	return write(d.at("net.d/10-tests.conflist"), networkText, d.opts.Bridge, d.at("ipam"), d.opts.Subnet)
}

func (d *Daemon) at(name string) string { return filepath.Join(d.opts.Dir, name) }

// Close ends the daemon and removes its network and directories. Its containers must be gone.
func (d *Daemon) Close() error {
	err := d.Stop(unix.SIGTERM)
	if link, linkErr := netlink.LinkByName(d.opts.Bridge); linkErr == nil {
		err = errors.Join(err, netlink.LinkDel(link))
	}
	return errors.Join(err, d.removeResults(), os.RemoveAll(d.opts.Dir), os.RemoveAll(d.opts.State))
}

// removeResults removes what libcni remembers of this daemon's sandboxes. A daemon that is stopped while it makes a
// sandbox forgets it.
func (d *Daemon) removeResults() error {
	files, err := filepath.Glob("/var/lib/cni/results/*")
	for _, file := range files {
		text, readErr := os.ReadFile(file) // one that is gone is of another test
		ours := bytes.Contains(text, []byte(d.opts.Dir+"/")) || bytes.Contains(text, []byte(d.opts.State+"/"))
		if readErr == nil && ours {
			err = errors.Join(err, os.Remove(file))
		}
	}
	return err
}

// StartTask starts the program of a container in the daemon's own API, which its CRI service does not notice.
func (d *Daemon) StartTask(ctx context.Context, container string) error {
	return d.ctr(ctx, "tasks", "start", "--detach", "--null-io", container)
}

func (d *Daemon) ctr(ctx context.Context, args ...string) error {
	args = append([]string{"--address", filepath.Join(d.opts.Dir, "c.sock"), "--namespace", "k8s.io"}, args...)
	return run(exec.CommandContext(ctx, "ctr", args...))
}

func run(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}

func write(path, format string, args ...any) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, fmt.Appendf(nil, format, args...), 0o644)
}

// buildPlugins builds the CNI plugins that the configuration names, and loopback, which containerd 1.6 runs for every
// pod.
func buildPlugins(ctx context.Context, tools, dir string) error {
	const plugins = "github.com/containernetworking/plugins/plugins/"
	return run(exec.CommandContext(ctx, "go", "build", "-C", tools, "-o", dir+"/",
		plugins+"main/bridge", plugins+"main/loopback", plugins+"ipam/host-local", plugins+"meta/portmap"))
}

// buildPause makes the pause image: the workload's image, with "sleep" as its command.
func buildPause(archive, path string) error {
	image, err := tarball.ImageFromPath(archive, nil)
	if err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.Config.Cmd = []string{"sleep"}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return err
	}
	tag, err := name.NewTag(pause)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(path, tag, image)
}
