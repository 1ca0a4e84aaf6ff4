package side

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/bench/stamp"
	"github.com/berth-run/berth/internal/docker/dockertest"
)

// Docker runs pods with the API of a Docker Engine alone: create and start of a pause container without a network, and
// of the containers that share its namespaces. It decides, watches and reports nothing, so its time is the floor for an
// agent that uses Docker.
type Docker struct {
	daemon *dockertest.Daemon
	group  Group
	stamps string

	commands atomic.Int64 // commands of ExecEachSecond that succeeded

	mu   sync.Mutex
	pods map[string][]string // the containers of a pod, by its name: the pause container first
}

// StartDocker starts a Docker Engine in a new directory, with the image loaded. Its path must be short.
func StartDocker(ctx context.Context, dir string) (*Docker, error) {
	d := &Docker{group: Group{"docker"}, stamps: dir + ".stamps", pods: map[string][]string{}}
	if err := errors.Join(os.Mkdir(dir, 0o700), os.MkdirAll(d.stamps, 0o755), d.group.make()); err != nil {
		return nil, err
	}
	daemon, err := dockertest.New(ctx, dockertest.Options{Dir: dir})
	if err != nil {
		return nil, err
	}
	d.daemon = daemon
	for _, pid := range daemon.Pids() {
		err = errors.Join(err, d.group.join(pid))
	}
	if err = errors.Join(err, daemon.Load(ctx, Archive)); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Close removes all containers and ends the Engine.
func (d *Docker) Close() error {
	return errors.Join(d.daemon.Close(), os.RemoveAll(d.stamps), removeGroup(d.group.side))
}

// Group is the cgroup of the Engine, of all its containers, and of the agent that uses it.
func (d *Docker) Group() Group { return d.group }

// Start implements Side.
func (d *Docker) Start(ctx context.Context, prefix string, pods int, s Shape, concurrency int) (time.Duration,
	error) {
	watch, err := stamp.Watch(d.stamps, s.stampNames(prefix, pods)...)
	if err != nil {
		return 0, err
	}
	defer watch.Close()
	var group errgroup.Group
	group.SetLimit(max(1, concurrency))
	begin := time.Now()
	for i := range pods {
		group.Go(func() error { return d.startPod(ctx, PodName(prefix, i), s) })
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	last, err := watch.Last(ctx)
	return last.Sub(begin), err
}

// startPod starts the pause container of a pod, and then its containers one after the other.
func (d *Docker) startPod(ctx context.Context, name string, s Shape) error {
	pause, err := d.run(ctx, name, name+"-pause", []string{"sleep"},
		container.HostConfig{NetworkMode: "none", IpcMode: "shareable"})
	if err != nil {
		return err
	}
	for _, c := range s.pod(name, d.stamps).Spec.Containers {
		shared := container.HostConfig{NetworkMode: container.NetworkMode("container:" + pause),
			IpcMode: container.IpcMode("container:" + pause), Binds: []string{d.stamps + ":/stamps"}}
		if _, err := d.run(ctx, name, name+"-"+c.Name, c.Args, shared); err != nil {
			return err
		}
	}
	return nil
}

// run creates and starts a container of a pod.
func (d *Docker) run(ctx context.Context, pod, name string, cmd []string, host container.HostConfig) (id string,
	err error) {
	host.CgroupParent = d.group.name() + "/pod-" + pod
	host.LogConfig = container.LogConfig{Type: "json-file"}
	created, err := d.daemon.Client().ContainerCreate(ctx, client.ContainerCreateOptions{Name: name,
		Config: &container.Config{Image: image, Cmd: cmd}, HostConfig: &host})
	if err != nil {
		return "", err
	}
	d.mu.Lock()
	d.pods[pod] = append(d.pods[pod], created.ID)
	d.mu.Unlock()
	_, err = d.daemon.Client().ContainerStart(ctx, created.ID, client.ContainerStartOptions{})
	return created.ID, err
}

// Remove implements Side.
func (d *Docker) Remove(ctx context.Context, prefix string, pods, concurrency int) (time.Duration, error) {
	var group errgroup.Group
	group.SetLimit(max(1, concurrency))
	begin := time.Now()
	for i := range pods {
		group.Go(func() error { return d.removePod(ctx, PodName(prefix, i)) })
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	took := time.Since(begin)
	return took, stamp.Clear(d.stamps)
}

func (d *Docker) removePod(ctx context.Context, name string) error {
	d.mu.Lock()
	ids := d.pods[name]
	delete(d.pods, name)
	d.mu.Unlock()
	force := client.ContainerRemoveOptions{Force: true}
	for _, id := range slices.Backward(ids) {
		if _, err := d.daemon.Client().ContainerRemove(ctx, id, force); err != nil {
			return err
		}
	}
	return removeGroup(filepath.Join(d.group.side, "pod-"+name))
}

// withPrefix returns the first container of each pod whose name begins with the prefix.
func (d *Docker) withPrefix(prefix string) (containers []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, ids := range d.pods {
		if strings.HasPrefix(name, prefix+"-") {
			containers = append(containers, ids[1])
		}
	}
	return containers
}

// StartBerthOnDocker starts an agent on a root directory that uses a Docker Engine, with the image loaded.
func StartBerthOnDocker(ctx context.Context, root string, d *Docker) (*Berth, error) {
	b := newBerth(Dirs{Root: root}, Group{d.group.side + "/agent"})
	config := thresholds + fmt.Sprintf("containerRuntimeEndpoint: docker://%s\npodCIDR: \"10.205.3.0/24\"\n",
		d.daemon.Endpoint())
	return b, b.start(ctx, config)
}

// Lists returns how long the runtime takes to list all containers, and to list their usage.
func (p *Process) Lists(ctx context.Context) (containers, usage time.Duration, err error) {
	begin := time.Now()
	if _, err := p.cri.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{}); err != nil {
		return 0, 0, err
	}
	containers = time.Since(begin)
	begin = time.Now()
	_, err = p.cri.Runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
	return containers, time.Since(begin), err
}
