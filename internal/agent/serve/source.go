package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/stats"
	"github.com/berth-run/berth/internal/pod/steps/cgroup"
)

// Source tells package stats of what runs.
type Source struct {
	CRI      *cri.Client
	Cgroups  cgroup.Containers
	Observed *store.Table[types.UID, *pod.Observed]
	// Pod finds a pod of this node by its UID.
	Pod func(types.UID) (*corev1.Pod, bool)
	// Volumes are those of a pod that are mounted, by name.
	Volumes func(types.UID) map[string]pod.Volume
	// Named are cgroups of the machine that the summary tells of, by what it calls
	// them; one without a path is left out.
	Named map[string]string
	// Logs is the directory of a pod's logs.
	Logs func(*corev1.Pod) string
	// Endpoint is where the runtime is, unix:///path; "" for one that is part of this
	// process.
	Endpoint string
}

// Pods implements stats.Source.
func (s Source) Pods() (pods []stats.Pod) {
	for uid, o := range s.Observed.Snapshot().All() {
		box, ok := o.Sandbox()
		if !ok {
			continue
		}
		p, ok := s.Pod(uid)
		if !ok {
			continue
		}
		group, at, err := s.Cgroups.Pod(p)
		if err != nil {
			continue // there is none to read
		}
		one := stats.Pod{
			Namespace: p.Namespace, Name: p.Name, UID: uid, Started: box.CreatedAt, Group: group, Path: at,
			HostNetwork: box.HostNetwork,
			Logs:        s.Logs(p), Volumes: s.volumes(p),
			Sandbox: stats.Container{ID: box.ID, RuntimeName: box.ID, Path: path.Join(at, box.ID),
				Started: box.CreatedAt},
		}
		for _, c := range o.ContainersOf() {
			if c.State != pod.StateRunning {
				continue
			}
			if child, ok := group.Child(c.ID); ok {
				one.Containers = append(one.Containers, stats.Container{
					Name: c.Name, ID: c.ID, RuntimeName: c.ID, Image: c.Image, Group: child,
					Path: path.Join(at, base(child)), Started: c.StartedAt,
				})
			}
		}
		pods = append(pods, one)
	}
	return pods
}

// base is the name of a cgroup.
func base(g cgroupfile.Group) string {
	for _, dir := range g.Dirs {
		return path.Base(dir)
	}
	return ""
}

func (s Source) volumes(p *corev1.Pod) (all []stats.Volume) {
	mounted := s.Volumes(p.UID)
	for _, v := range p.Spec.Volumes {
		m, ok := mounted[v.Name]
		if !ok {
			continue
		}
		one := stats.Volume{Name: v.Name, Path: m.Path, Block: m.Block,
			Ephemeral: v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumDefault}
		switch {
		case v.PersistentVolumeClaim != nil:
			one.Claim = &statsapi.PVCReference{Namespace: p.Namespace, Name: v.PersistentVolumeClaim.ClaimName}
		case v.Ephemeral != nil:
			one.Claim = &statsapi.PVCReference{Namespace: p.Namespace, Name: p.Name + "-" + v.Name}
		case v.HostPath != nil, v.Image != nil:
			continue // they are not the pod's
		}
		all = append(all, one)
	}
	return all
}

// Named are the cgroups that a configuration names for the statistics alone.
func Named(c *config.Config) map[string]string {
	return map[string]string{
		statsapi.SystemContainerRuntime: c.RuntimeCgroups,
		statsapi.SystemContainerKubelet: c.Kubelet.KubeletCgroups,
		statsapi.SystemContainerMisc:    c.Kubelet.SystemCgroups,
	}
}

// System implements stats.Source.
func (s Source) System() map[string]stats.Part {
	all := map[string]stats.Part{statsapi.SystemContainerKubelet: {PID: os.Getpid()}}
	if g, err := s.Cgroups.Pods(); err == nil {
		all[statsapi.SystemContainerPods] = stats.Part{Group: g}
	}
	if pid := listener(s.Endpoint); pid != 0 {
		all[statsapi.SystemContainerRuntime] = stats.Part{PID: pid}
	}
	machine, err := s.Cgroups.Machine()
	if err != nil {
		return all
	}
	for name, path := range s.Named {
		if path == "" {
			continue
		}
		g := cgroupfile.Group{Unified: machine.Unified, Dirs: map[string]string{}}
		for controller, dir := range machine.Dirs {
			g.Dirs[controller] = filepath.Join(dir, path)
		}
		all[name] = stats.Part{Group: g}
	}
	return all
}

// listener is the process that listens on a socket, see SO_PEERCRED in unix(7); 0
// where that cannot be told, or is the init process, which listens for others.
func listener(endpoint string) int {
	path, ok := strings.CutPrefix(endpoint, "unix://")
	if !ok {
		return 0
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return 0
	}
	defer func() { _ = c.Close() }() // nothing was said
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	err = raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil && peer.Pid > 1 {
			pid = int(peer.Pid)
		}
	})
	if err != nil {
		return 0
	}
	return pid
}

// Layers implements stats.Source.
func (s Source) Layers(ctx context.Context) (map[string]stats.Layer, error) {
	r, err := s.CRI.Runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
	if err != nil {
		return nil, err
	}
	all := make(map[string]stats.Layer, len(r.Stats))
	for _, c := range r.Stats {
		w := c.GetWritableLayer()
		all[c.GetAttributes().GetId()] = stats.Layer{Bytes: w.GetUsedBytes().GetValue(),
			Inodes: w.GetInodesUsed().GetValue()}
	}
	return all, nil
}

// Images implements stats.Source.
func (s Source) Images(ctx context.Context) (bytes, inodes uint64, dir string, err error) {
	r, err := s.CRI.Images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return 0, 0, "", err
	}
	if len(r.ImageFilesystems) == 0 {
		return 0, 0, "", errors.New("the runtime tells of no file system of images")
	}
	f := r.ImageFilesystems[0]
	return f.GetUsedBytes().GetValue(), f.GetInodesUsed().GetValue(), f.GetFsId().GetMountpoint(), nil
}

// Commands runs commands and makes checkpoints through the CRI.
type Commands struct {
	CRI *cri.Client
	// ID is the id of a pod's container at the runtime.
	ID func(p *corev1.Pod, container string) string
}

// Run implements https.Runtime.
func (c Commands) Run(ctx context.Context, p *corev1.Pod, container string, command []string) ([]byte, error) {
	r, err := c.CRI.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: c.ID(p, container), Cmd: command})
	if err != nil {
		return nil, err
	}
	out := slices.Concat(r.Stdout, r.Stderr)
	if r.ExitCode != 0 {
		return out, fmt.Errorf("command terminated with exit code %d", r.ExitCode)
	}
	return out, nil
}

// Checkpoint implements https.Runtime.
func (c Commands) Checkpoint(ctx context.Context, p *corev1.Pod, container, path string, timeout time.Duration) error {
	_, err := c.CRI.Runtime.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{
		ContainerId: c.ID(p, container), Location: path, Timeout: int64(timeout.Seconds()),
	})
	return err
}
