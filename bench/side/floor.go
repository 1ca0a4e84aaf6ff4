package side

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/bench/stamp"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/steps/container/render"
	"github.com/berth-run/berth/internal/pod/steps/sandbox"
)

// Floor runs pods without an agent. It makes the CRI calls of a pod start itself, one after the other, to the
// embedded runtime on a socket. It decides, watches and reports nothing, so its time is the floor for an agent.
type Floor struct {
	Process
	mu       sync.Mutex
	pods     map[string]*floorPod // by name
	commands atomic.Int64         // commands of ExecEachSecond that succeeded
}

// floorPod is a pod with its CRI configuration, which is rendered before the measurement begins.
type floorPod struct {
	name       string
	cgroup     string // below groups
	config     *runtimeapi.PodSandboxConfig
	containers []*runtimeapi.ContainerConfig

	sandbox string
	ids     []string // of the containers
	ended   bool     // the pod is being removed, so its containers must not restart
}

// newFloor describes a floor, and the pods in its group.
func newFloor(dirs Dirs, group Group) *Floor {
	pods := group.name() + "/pod-*"
	return &Floor{
		Process: Process{Dirs: dirs, Stamps: filepath.Join(dirs.Root, "stamps"), group: group, remains: []string{
			filepath.Join(dirs.Root, "logs", "*"), "/sys/fs/cgroup/*" + pods, "/sys/fs/cgroup" + pods,
		}},
		pods: map[string]*floorPod{},
	}
}

// FloorOn is a floor on a runtime that runs already, with the name of its group. Close leaves the runtime.
func FloorOn(dirs Dirs, name, endpoint string, pid int) (f *Floor, err error) {
	f = newFloor(dirs, Group{name})
	f.cri, err = dial(endpoint)
	return f, errors.Join(err, os.MkdirAll(f.Stamps, 0o755), f.group.make(), f.group.join(pid))
}

// StartFloor starts the embedded runtime alone on its directories, with the image loaded.
func StartFloor(ctx context.Context, dirs Dirs) (*Floor, error) {
	f := newFloor(dirs, Group{"floor"})
	config := thresholds + "podCIDR: \"10.205.2.0/24,fd00:be:2::/64\"\ncgroupRoot: /berth-bench/floor\n"
	if err := f.launch(config, "runtime", "--listen", f.socket(), "--image-archive", Archive); err != nil {
		return nil, err
	}
	// The runtime is ready when it answers and has the image.
	err := poll(ctx, 50*time.Millisecond, func(ctx context.Context) (bool, error) {
		r, err := f.cri.Images.ImageStatus(ctx,
			&runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: image}})
		return err == nil && r.Image != nil, nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start runtime: %w", err), f.Close())
	}
	return f, nil
}

// Start implements Side.
func (f *Floor) Start(ctx context.Context, prefix string, pods int, s Shape, concurrency int) (time.Duration,
	error) {
	watch, err := stamp.Watch(f.Stamps, s.stampNames(prefix, pods)...)
	if err != nil {
		return 0, err
	}
	defer watch.Close()
	prepared := make([]*floorPod, pods)
	for i := range pods {
		if prepared[i], err = f.prepare(f.group, PodName(prefix, i), s); err != nil {
			return 0, err
		}
	}
	var group errgroup.Group
	group.SetLimit(concurrency)
	begin := time.Now()
	for _, p := range prepared {
		group.Go(func() error { return f.startPod(ctx, p) })
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	last, err := watch.Last(ctx)
	return last.Sub(begin), err
}

// prepare renders the same pod that Berth gets, with the same code. The pod is in the cgroup
// of a side.
func (f *Floor) prepare(group Group, name string, s Shape) (*floorPod, error) {
	p := s.pod(name, f.Stamps)
	p.UID = types.UID(name)
	logs := f.logs(name)
	out := &floorPod{name: name, cgroup: group.side + "/pod-" + name}
	var err error
	if out.config, err = sandbox.Render(p,
		sandbox.Given{Hostname: name, LogDir: logs, CgroupParent: groups + "/" + out.cgroup,
			DNS: &runtimeapi.DNSConfig{}}); err != nil {
		return nil, err
	}
	for _, c := range pod.Containers(p) {
		hosts, message := filepath.Join(f.Root, "hosts"), filepath.Join(f.Root, "message-"+name+"-"+c.Name)
		for _, file := range []string{hosts, message} {
			if err := os.WriteFile(file, nil, 0o666); err != nil {
				return nil, err
			}
		}
		if err := os.MkdirAll(filepath.Join(logs, c.Name), 0o755); err != nil {
			return nil, err
		}
		c.TerminationMessagePath = corev1.TerminationMessagePathDefault
		config, err := render.Config(render.Input{
			Pod: p, QOS: corev1.PodQOSBestEffort, Container: c, Image: &runtimeapi.Image{Id: image},
			PodIPs:  []string{"10.0.0.1"},
			Volumes: []string{f.Stamps}, HostsFile: hosts, TerminationLog: message,
			Node: render.Node{MemoryCapacity: 1 << 34, CFSQuota: true},
		})
		if err != nil {
			return nil, err
		}
		config.Image = &runtimeapi.ImageSpec{Image: image}
		out.containers = append(out.containers, config)
	}
	return out, nil
}

func (f *Floor) logs(name string) string { return filepath.Join(f.Root, "logs", name) }

func (f *Floor) startPod(ctx context.Context, p *floorPod) error {
	box, err := f.cri.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: p.config})
	if err != nil {
		return err
	}
	p.sandbox = box.PodSandboxId
	f.mu.Lock()
	f.pods[p.name] = p
	f.mu.Unlock()
	for _, config := range p.containers {
		id, err := f.startContainer(ctx, p, config)
		if err != nil {
			return err
		}
		p.ids = append(p.ids, id)
	}
	return nil
}

func (f *Floor) startContainer(ctx context.Context, p *floorPod, config *runtimeapi.ContainerConfig) (id string,
	err error) {
	c, err := f.cri.Runtime.CreateContainer(ctx,
		&runtimeapi.CreateContainerRequest{PodSandboxId: p.sandbox, Config: config, SandboxConfig: p.config})
	if err != nil {
		return "", err
	}
	_, err = f.cri.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.ContainerId})
	return c.ContainerId, err
}

// Remove implements Side.
func (f *Floor) Remove(ctx context.Context, prefix string, pods, concurrency int) (time.Duration, error) {
	var group errgroup.Group
	group.SetLimit(concurrency)
	begin := time.Now()
	for i := range pods {
		p := f.pods[PodName(prefix, i)]
		f.mu.Lock()
		p.ended = true
		f.mu.Unlock()
		group.Go(func() error { return f.removePod(ctx, p) })
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	if err := f.nothingLeft(ctx); err != nil {
		return 0, err
	}
	took := time.Since(begin)
	for i := range pods {
		delete(f.pods, PodName(prefix, i))
	}
	return took, stamp.Clear(f.Stamps)
}

// removePod stops the containers, then the sandbox, and removes everything of the pod. An agent must know the end of
// the containers before it stops the sandbox, so the floor keeps this order too.
func (f *Floor) removePod(ctx context.Context, p *floorPod) error {
	for _, id := range p.ids {
		if _, err := f.cri.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id}); err != nil {
			return err
		}
	}
	if _, err := f.cri.Runtime.StopPodSandbox(ctx,
		&runtimeapi.StopPodSandboxRequest{PodSandboxId: p.sandbox}); err != nil {
		return err
	}
	if _, err := f.cri.Runtime.RemovePodSandbox(ctx,
		&runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.sandbox}); err != nil {
		return err
	}
	if err := removeGroup(p.cgroup); err != nil {
		return err
	}
	return os.RemoveAll(f.logs(p.name))
}

func (f *Floor) withPrefix(prefix string) (all []*floorPod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, p := range f.pods {
		if strings.HasPrefix(name, prefix+"-") {
			all = append(all, p)
		}
	}
	return all
}
