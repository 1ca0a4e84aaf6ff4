package dockertest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/moby/client"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/pausetest"
)

// Options of a Daemon.
type Options struct {
	// Dir holds all files. Its path must be short, because unix sockets lie below it.
	Dir string
	// Program is the path of dockerd. Empty: the one that the environment variable BERTH_TEST_DOCKERD names (make
	// docker-latest), or the one in PATH. Programs beside it, such as runc, are found before those in PATH.
	Program string
	// Args are further flags.
	Args []string
	// EndContainers makes the containers end with dockerd, which is the default of Docker (no live-restore).
	EndContainers bool
	// RootSize is the size in bytes of a file system for the data root; 0: the data root is a directory.
	RootSize int64
}

// Daemon is a dockerd with a containerd of its own. Its containers run on while dockerd does not run (live-restore),
// unless the options say otherwise.
type Daemon struct {
	opts       Options
	containerd *process
	dockerd    *process // nil while it does not run
	client     *client.Client
	started    bool // once, so that there may be containers
	closed     bool
}

// current is the environment variable with the path of a dockerd that tests use in place of the one in PATH.
const current = "BERTH_TEST_DOCKERD"

// Current reports whether tests use the current Engine that make engine builds, and not the machine's own.
func Current() bool { return os.Getenv(current) != "" }

// New starts a dockerd and waits until it answers.
func New(ctx context.Context, o Options) (*Daemon, error) {
	path, err := exec.LookPath(cmp.Or(o.Program, os.Getenv(current), "dockerd"))
	if err != nil {
		return nil, fmt.Errorf("find dockerd: %w; next: run hack/setup.sh", err)
	}
	o.Program = path
	c, err := client.New(client.WithHost("unix://" + filepath.Join(o.Dir, "docker.sock")))
	if err != nil {
		return nil, err
	}
	d := &Daemon{opts: o, client: c}
	config := fmt.Appendf(nil, containerdConfig, d.at("ctr"), d.at("ctrd"), d.at("c.sock"))
	if err := errors.Join(os.WriteFile(d.at("containerd.toml"), config, 0o600), d.configure(ctx),
		mountTemporary(d.Root(), o.RootSize)); err != nil {
		return nil, errors.Join(err, d.unmount())
	}
	if err := d.Start(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// containerdConfig configures containerd 1.6 and later: its directories and its socket, without Kubernetes.
const containerdConfig = `version = 2
root = %q
state = %q
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = %q
`

// configure writes the configuration of dockerd. Older versions make a key in /etc/docker unless the configuration has
// another path. Later versions, which can validate a configuration, refuse that entry.
func (d *Daemon) configure(ctx context.Context) error {
	key := fmt.Appendf(nil, "{%q: %q}\n", "deprecated-key-path", d.at("key.json"))
	if err := os.WriteFile(d.at("daemon.json"), key, 0o600); err != nil {
		return err
	}
	output, err := exec.CommandContext(ctx, d.opts.Program, "--validate", "--config-file",
		d.at("daemon.json")).CombinedOutput()
	if err == nil || bytes.Contains(output, []byte("unknown flag")) {
		return nil
	}
	return os.WriteFile(d.at("daemon.json"), []byte("{}\n"), 0o600)
}

// mountTemporary mounts a file system of a size in bytes on a new directory; 0 mounts none.
func mountTemporary(dir string, size int64) error {
	if size == 0 {
		return nil
	}
	if err := os.Mkdir(dir, 0o711); err != nil {
		return err
	}
	return unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size))
}

// Client is a client of the daemon's API.
func (d *Daemon) Client() *client.Client { return d.client }

// Endpoint is the address of the daemon's API.
func (d *Daemon) Endpoint() string { return "unix://" + d.Socket() }

// Socket is the path of the socket of the daemon's API.
func (d *Daemon) Socket() string { return d.at("docker.sock") }

// Root is the daemon's data root.
func (d *Daemon) Root() string { return d.at("root") }

// Cgroup is the parent cgroup of all containers that name none.
func (d *Daemon) Cgroup() string { return "/berth-" + filepath.Base(d.opts.Dir) }

// Pid is the ID of the daemon's process.
func (d *Daemon) Pid() int { return d.dockerd.Process.Pid }

// Pids returns the process IDs of the daemon and of its containerd.
func (d *Daemon) Pids() []int { return []int{d.dockerd.Process.Pid, d.containerd.Process.Pid} }

// Log returns the content of the daemon's log.
func (d *Daemon) Log() string {
	content, _ := os.ReadFile(d.at("log"))
	return string(content)
}

// Start starts the daemon, and waits until it answers.
func (d *Daemon) Start(ctx context.Context) (err error) {
	if d.containerd == nil {
		for _, volatile := range []string{"ctrd", "exec", "pid"} { // what a machine has in memory
			if err := os.RemoveAll(d.at(volatile)); err != nil {
				return err
			}
		}
		d.containerd, err = d.launch(ctx, "containerd", "--config", d.at("containerd.toml"), "--log-level", "error")
		if err != nil {
			return err
		}
	}
	if d.dockerd, err = d.launch(ctx, d.opts.Program, d.args()...); err != nil {
		return err
	}
	d.started = true
	_, err = d.client.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true})
	return err
}

// Crash ends dockerd and its containerd, as the end of the machine does. Before the next Start, the caller must end the
// containers and unmount what is mounted below the directory of the Daemon.
func (d *Daemon) Crash() error {
	err := errors.Join(d.dockerd.stop(unix.SIGKILL), d.containerd.stop(unix.SIGKILL))
	d.dockerd, d.containerd = nil, nil
	return err
}

// args returns the flags of the daemon: flags that keep it in its directory, and the caller's.
func (d *Daemon) args() []string {
	args := []string{
		"--config-file", d.at("daemon.json"), "--data-root", d.Root(), "--exec-root", d.at("exec"),
		"--pidfile", d.at("pid"), "--host", d.Endpoint(), "--cgroup-parent", d.Cgroup(),
		"--containerd", d.at("c.sock"), "--exec-opt", "native.cgroupdriver=cgroupfs",
		"--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false",
		"--log-level=warn", fmt.Sprintf("--live-restore=%t", !d.opts.EndContainers),
	}
	return append(args, d.opts.Args...)
}

// Stop ends the daemon with a signal and waits for its end. Its containers run on, unless the options say otherwise.
func (d *Daemon) Stop(signal unix.Signal) error {
	err := d.dockerd.stop(signal)
	d.dockerd = nil
	return err
}

// Process returns the daemon's process, for package pausetest.
func (d *Daemon) Process() *os.Process { return d.dockerd.Process }

// Load loads the images of an archive, such as test/image builds.
func (d *Daemon) Load(ctx context.Context, archive string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it is only read
	result, err := d.client.ImageLoad(ctx, file)
	if err != nil {
		return fmt.Errorf("load %s: %w", archive, err)
	}
	defer func() { _ = result.Close() }() // it is only read
	output, err := io.ReadAll(result)
	if err != nil || !bytes.Contains(output, []byte("Loaded image")) {
		return fmt.Errorf("load %s: %w: %s", archive, err, output)
	}
	return nil
}

// Close removes all containers, ends the daemon, and removes its mounts, cgroups and files. If the daemon does not run,
// Close starts it again, because only the daemon can end its containers in order.
func (d *Daemon) Close() error {
	if d.closed {
		return nil
	}
	d.closed = true
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var err error
	switch {
	case !d.started:
	case d.dockerd == nil:
		err = d.Start(ctx)
	default:
		_ = pausetest.Resume(d.Process())
	}
	if err == nil && d.dockerd != nil {
		err = d.removeContainers(ctx)
	}
	return errors.Join(err, d.Stop(unix.SIGTERM), d.containerd.stop(unix.SIGTERM), d.client.Close(),
		d.unmount(), d.removeCgroups(), os.RemoveAll(d.opts.Dir))
}

func (d *Daemon) removeContainers(ctx context.Context) (err error) {
	list, err := d.client.ContainerList(ctx, client.ContainerListOptions{All: true})
	for _, c := range list.Items {
		_, failed := d.client.ContainerRemove(ctx, c.ID,
			client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		err = errors.Join(err, failed)
	}
	return err
}

// unmount removes the mounts that the daemon leaves: its data root and a network namespace.
func (d *Daemon) unmount() (err error) {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(d.opts.Dir))
	for _, m := range slices.Backward(mounts) {
		if strings.HasPrefix(m.Mountpoint, d.opts.Dir+"/") {
			err = errors.Join(err, unix.Unmount(m.Mountpoint, unix.MNT_DETACH))
		}
	}
	return err
}

// removeCgroups removes the parent cgroup of the containers, in each hierarchy.
func (d *Daemon) removeCgroups() (err error) {
	for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		dirs, _ := filepath.Glob(pattern + d.Cgroup())
		for _, dir := range dirs {
			var below []string
			_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
				if err == nil && e.IsDir() {
					below = append(below, path)
				}
				return nil
			})
			for _, path := range slices.Backward(below) {
				if failed := unix.Rmdir(path); failed != nil && !errors.Is(failed, fs.ErrNotExist) {
					err = errors.Join(err, fmt.Errorf("remove cgroup %s: %w", path, failed))
				}
			}
		}
	}
	return err
}

func (d *Daemon) at(name string) string { return filepath.Join(d.opts.Dir, name) }
