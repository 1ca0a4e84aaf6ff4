package side

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/bench/stamp"
)

// Bare starts containers with runc alone. The measured time has `runc create` and `runc start` only. Before, the floor
// prepares a sandbox with its namespaces and cgroup, and the container's configuration. So runc gets the bundle that
// containerd would give it. The bundle's root file system is mounted before, too.
type Bare struct {
	floor *Floor
	runc  string // the embedded runc
	dirs  Dirs   // of bundles, and of runc's state
	image string // the files of the image
	group Group

	mu   sync.Mutex
	pods map[string]*barePod // by name
}

// barePod is a sandbox with a container that only runc knows.
type barePod struct {
	*floorPod
	bundle string
}

// PrepareBare makes the files that all containers of the side share, in new directories.
func PrepareBare(ctx context.Context, floor *Floor, dirs Dirs) (*Bare, error) {
	b := &Bare{floor: floor, dirs: dirs, image: filepath.Join(dirs.Root, "image"), group: Group{"bare"},
		pods: map[string]*barePod{}}
	found, err := filepath.Glob(filepath.Join(floor.Root, "runtime", "bin", "runc-*"))
	if err != nil || len(found) != 1 {
		return nil, fmt.Errorf("find the embedded runc: %d files match, want 1 (%w)", len(found), err)
	}
	b.runc = found[0]
	if err := errors.Join(b.group.make(), os.MkdirAll(b.image, 0o755), os.MkdirAll(dirs.Run, 0o755)); err != nil {
		return nil, err
	}
	const name = "image"
	if _, err := floor.Start(ctx, name, 1, Shape{}, 1); err != nil {
		return nil, err
	}
	_, pid, err := floor.Container(ctx, PodName(name, 0))
	if err != nil {
		return nil, err
	}
	// The option keeps cp on the container's root file system, without its mounts.
	from := fmt.Sprintf("/proc/%d/root/.", pid)
	if out, err := exec.CommandContext(ctx, "cp", "-a", "--one-file-system", from,
		b.image).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("copy the image's files: %w\n%s", err, out)
	}
	_, err = floor.Remove(ctx, name, 1, 1)
	return b, err
}

// Group is the cgroup of runc and of the containers.
func (b *Bare) Group() Group { return b.group }

// Start implements Side. Pods have one container, whatever the shape says.
func (b *Bare) Start(ctx context.Context, prefix string, pods int, s Shape, concurrency int) (time.Duration, error) {
	s.Containers = 1
	watch, err := stamp.Watch(b.floor.Stamps, s.stampNames(prefix, pods)...)
	if err != nil {
		return 0, err
	}
	defer watch.Close()
	prepared := make([]*barePod, pods)
	for i := range pods {
		if prepared[i], err = b.prepare(ctx, PodName(prefix, i), s); err != nil {
			return 0, err
		}
	}
	var group errgroup.Group
	group.SetLimit(concurrency)
	begin := time.Now()
	for _, p := range prepared {
		group.Go(func() error {
			if err := b.do(ctx, "create", "--bundle", p.bundle, p.name); err != nil {
				return err
			}
			return b.do(ctx, "start", p.name)
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	last, err := watch.Last(ctx)
	return last.Sub(begin), err
}

// Create returns how long `runc create` alone takes for a new pod. It removes the pod again.
func (b *Bare) Create(ctx context.Context, name string) (time.Duration, error) {
	p, err := b.prepare(ctx, name, Shape{})
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := b.do(ctx, "create", "--bundle", p.bundle, p.name); err != nil {
		return 0, err
	}
	took := time.Since(begin)
	return took, b.removePod(ctx, p)
}

// prepare makes a sandbox and a bundle.
func (b *Bare) prepare(ctx context.Context, name string, s Shape) (*barePod, error) {
	p, err := b.floor.prepare(b.group, name, s)
	if err != nil {
		return nil, err
	}
	box, err := b.floor.cri.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: p.config})
	if err != nil {
		return nil, err
	}
	p.sandbox = box.PodSandboxId
	c, err := b.floor.cri.Runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: p.sandbox, Config: p.containers[0], SandboxConfig: p.config})
	if err != nil {
		return nil, err
	}
	spec, err := b.spec(ctx, c.ContainerId)
	if err != nil {
		return nil, err
	}
	bare := &barePod{floorPod: p, bundle: filepath.Join(b.dirs.Root, name)}
	b.mu.Lock()
	b.pods[name] = bare
	b.mu.Unlock()
	return bare, b.writeBundle(bare.bundle, spec)
}

// spec is the configuration that containerd would give to runc.
func (b *Bare) spec(ctx context.Context, container string) (*specs.Spec, error) {
	status, err := b.floor.cri.Runtime.ContainerStatus(ctx,
		&runtimeapi.ContainerStatusRequest{ContainerId: container, Verbose: true})
	if err != nil {
		return nil, err
	}
	var info struct {
		RuntimeSpec *specs.Spec `json:"runtimeSpec"`
	}
	if err := json.Unmarshal([]byte(status.Info["info"]), &info); err != nil || info.RuntimeSpec == nil {
		return nil, fmt.Errorf("read the configuration of container %s: %w", container, err)
	}
	return info.RuntimeSpec, nil
}

// writeBundle makes a bundle. Its root file system is an overlay, as containerd's snapshotter makes it.
func (b *Bare) writeBundle(dir string, spec *specs.Spec) error {
	root := filepath.Join(dir, "rootfs")
	options := "lowerdir=" + b.image
	for name, path := range map[string]string{"": root, "upperdir": filepath.Join(dir, "upper"),
		"workdir": filepath.Join(dir, "work")} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
		if name != "" {
			options += "," + name + "=" + path
		}
	}
	spec.Root.Path = root
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "config.json"), text, 0o644),
		unix.Mount("overlay", root, "overlay", 0, options))
}

// log is the file of runc's messages.
func (b *Bare) log() string { return filepath.Join(b.dirs.Run, "log") }

// do executes runc in the side's cgroup. Its output is discarded, because the container inherits the descriptors.
func (b *Bare) do(ctx context.Context, args ...string) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread is in the cgroup, so it must end with the goroutine
		if err := b.group.joinThread(); err != nil {
			result <- err
			return
		}
		args := append([]string{"--root", filepath.Join(b.dirs.Run, "state"), "--log", b.log()}, args...)
		result <- exec.CommandContext(ctx, b.runc, args...).Run()
	}()
	if err := <-result; err != nil {
		text, _ := os.ReadFile(b.log())
		return fmt.Errorf("runc %s: %w\n%s", args[0], err, text)
	}
	return nil
}

// Remove implements Side. The time means nothing: it includes the removal of the sandboxes that the floor has prepared.
func (b *Bare) Remove(ctx context.Context, prefix string, pods, concurrency int) (time.Duration, error) {
	var ended []*barePod
	b.mu.Lock()
	for i := range pods {
		ended = append(ended, b.pods[PodName(prefix, i)])
	}
	b.mu.Unlock()
	var group errgroup.Group
	group.SetLimit(concurrency)
	for _, p := range ended {
		group.Go(func() error { return b.removePod(ctx, p) })
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	return 0, nil
}

func (b *Bare) removePod(ctx context.Context, p *barePod) error {
	b.mu.Lock()
	delete(b.pods, p.name)
	b.mu.Unlock()
	if err := b.do(ctx, "delete", "--force", p.name); err != nil {
		return err
	}
	return errors.Join(
		os.RemoveAll(filepath.Join(b.floor.Stamps, StampName(p.name, 0))),
		unix.Unmount(filepath.Join(p.bundle, "rootfs"), 0),
		os.RemoveAll(p.bundle),
		b.floor.removePod(ctx, p.floorPod),
	)
}

// Close removes the containers that an interrupted measurement has left.
func (b *Bare) Close() (err error) {
	for _, p := range b.pods {
		err = errors.Join(err, b.removePod(context.Background(), p))
	}
	return err
}
