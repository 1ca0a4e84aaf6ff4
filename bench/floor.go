package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/berth-run/berth/internal/container/render"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/pod"
	"github.com/berth-run/berth/internal/sandbox"
)

// floorSide makes the CRI calls of a pod start itself, one after the other,
// against the embedded runtime on a socket. Nothing decides, watches or reports.
type floorSide struct {
	root, stamps string
	cmd          *exec.Cmd
	client       *cri.Client

	mu    sync.Mutex
	boxes map[string]string // pod to sandbox
}

func startFloor(ctx context.Context, root string) (*floorSide, error) {
	f := &floorSide{root: root, stamps: filepath.Join(root, "stamps"), boxes: map[string]string{}}
	if err := os.MkdirAll(f.stamps, 0o755); err != nil {
		return nil, err
	}
	config := filepath.Join(root, "config.yaml")
	if err := os.WriteFile(config, []byte(configHeader+"podCIDR: \"10.205.2.0/24,fd00:be:2::/64\"\ncgroupRoot: /berth-bench\n"), 0o644); err != nil {
		return nil, err
	}
	socket := "unix://" + filepath.Join(root, "cri.sock")
	f.cmd = exec.Command(binary, "runtime", "--root-dir", root, "--config", config, "--log-level", "warn", "--listen", socket, "--image-archive", archive)
	f.cmd.Stderr = os.Stderr
	if err := f.cmd.Start(); err != nil {
		return nil, err
	}
	client, err := cri.New(socket, cri.Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return nil, errors.Join(err, f.end())
	}
	f.client = client
	if err := f.ready(ctx); err != nil {
		return nil, errors.Join(err, f.end())
	}
	return f, nil
}

// ready waits until the runtime answers and has the image.
func (f *floorSide) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		r, err := f.client.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: image}})
		if err == nil && r.Image != nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("start runtime: %w", errors.Join(err, ctx.Err()))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (f *floorSide) end() error {
	return endProcess(f.cmd, "reset", "--yes", "--root-dir", f.root, "--config", filepath.Join(f.root, "config.yaml"))
}

func (f *floorSide) start(ctx context.Context, prefix string, pods, containers, concurrency int) (time.Duration, error) {
	watch, err := watchStamps(f.stamps, prefix, pods, containers)
	if err != nil {
		return 0, err
	}
	defer watch.close()
	prepared := make([]prepared, pods)
	for i := range pods {
		if prepared[i], err = f.prepare(podName(prefix, i), containers); err != nil {
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
	last, err := watch.last(ctx)
	return last.Sub(begin), err
}

// prepared is a pod whose CRI configuration has been made: the floor is not
// charged for it.
type prepared struct {
	name       string
	sandbox    *runtimeapi.PodSandboxConfig
	containers []*runtimeapi.ContainerConfig
}

// prepare renders the pod that Berth is given, with the same code.
func (f *floorSide) prepare(name string, containers int) (prepared, error) {
	p := &corev1.Pod{}
	if err := yaml.Unmarshal([]byte(manifest(name, f.stamps, containers)), p); err != nil {
		return prepared{}, err
	}
	p.UID = types.UID(name)
	logs := filepath.Join(f.root, "logs", name)
	box, err := sandbox.Render(p, sandbox.Given{Hostname: name, LogDir: logs, CgroupParent: "/berth-bench/" + name, DNS: &runtimeapi.DNSConfig{}})
	if err != nil {
		return prepared{}, err
	}
	out := prepared{name: name, sandbox: box}
	for _, c := range pod.Containers(p) {
		hosts, message := filepath.Join(f.root, "hosts"), filepath.Join(f.root, "message-"+name+"-"+c.Name)
		for _, file := range []string{hosts, message} {
			if err := os.WriteFile(file, nil, 0o666); err != nil {
				return prepared{}, err
			}
		}
		if err := os.MkdirAll(filepath.Join(logs, c.Name), 0o755); err != nil {
			return prepared{}, err
		}
		c.TerminationMessagePath = corev1.TerminationMessagePathDefault
		config, err := render.Config(render.Input{
			Pod: p, QOS: corev1.PodQOSBestEffort, Container: c, Image: &runtimeapi.Image{Id: image}, PodIPs: []string{"10.0.0.1"},
			Volumes: []string{f.stamps}, HostsFile: hosts, TerminationLog: message,
			Node: render.Node{MemoryCapacity: 1 << 34, CFSQuota: true},
		})
		if err != nil {
			return prepared{}, err
		}
		config.Image = &runtimeapi.ImageSpec{Image: image}
		out.containers = append(out.containers, config)
	}
	return out, nil
}

func (f *floorSide) startPod(ctx context.Context, p prepared) error {
	box, err := f.client.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: p.sandbox})
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.boxes[p.name] = box.PodSandboxId
	f.mu.Unlock()
	for _, config := range p.containers {
		c, err := f.client.Runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
			PodSandboxId: box.PodSandboxId, Config: config, SandboxConfig: p.sandbox})
		if err != nil {
			return err
		}
		if _, err := f.client.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.ContainerId}); err != nil {
			return err
		}
	}
	return nil
}

func (f *floorSide) remove(ctx context.Context, prefix string, pods int) error {
	var group errgroup.Group
	group.SetLimit(4)
	for name, id := range f.boxes {
		if !strings.HasPrefix(name, prefix+"-") {
			continue
		}
		group.Go(func() error {
			if _, err := f.client.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
				return err
			}
			_, err := f.client.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i := range pods {
		delete(f.boxes, podName(prefix, i))
	}
	return clearStamps(f.stamps)
}

func (f *floorSide) pid() int { return f.cmd.Process.Pid }
