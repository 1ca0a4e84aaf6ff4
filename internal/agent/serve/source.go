package serve

import (
	"context"
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

	"github.com/berth-run/berth/internal/api/stream"
	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/base/diskusage"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/base/unixsocket"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/stats"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/steps/cgroup"
	"github.com/berth-run/berth/internal/pod/steps/poddir"
	"github.com/berth-run/berth/internal/pod/steps/volume"
)

// Source gives package stats the pods, cgroups and file systems to measure.
type Source struct {
	CRI      *cri.Client
	Cgroups  cgroup.Containers
	Observed *store.Table[types.UID, *pod.Observed]
	Fleet    *fleet.Fleet
	Mounts   *volume.Volumes
	// Named are the paths of further cgroups of the machine, by their names in the summary. A cgroup without a path is
	// left out.
	Named map[string]string
	Dirs  *poddir.Dirs
	Disk  disk
	// Endpoint is the address of the runtime. Only a process that listens on unix:///path is measured.
	Endpoint string
}

// disk measures what pods use of file systems.
type disk interface {
	// Layers returns the sizes of the writable layers of all containers, by container ID. After an error it returns
	// those that it could read.
	Layers(context.Context) (map[string]diskusage.Usage, error)
}

// Stats returns the part that measures the pods of this source and the machine. It sets Root, Host, Source and Now of
// the options.
func (s Source) Stats(o stats.Options) (*stats.Stats, error) {
	machine, err := s.Cgroups.Machine()
	if err != nil {
		return nil, fmt.Errorf("find the machine's cgroup: %w", err)
	}
	o.Root, o.Host, o.Source, o.Now = machine, "/", s, time.Now
	return stats.New(o), nil
}

// Pods implements stats.Source.
func (s Source) Pods() (pods []stats.Pod) {
	for uid, o := range s.Observed.Snapshot().All() {
		box, ok := o.Sandbox()
		if !ok {
			continue
		}
		p, ok := s.Fleet.Pod(uid)
		if !ok {
			continue
		}
		group, at, err := s.Cgroups.Pod(p)
		if err != nil {
			continue // the pod has no cgroup to read
		}
		one := stats.Pod{
			Namespace: p.Namespace, Name: p.Name, UID: uid, Started: box.CreatedAt, Group: group, Path: at,
			HostNetwork: box.HostNetwork,
			Logs:        s.Dirs.LogDir(p), Volumes: s.volumes(p),
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

// base returns the last element of a cgroup's path.
func base(g cgroupfile.Group) string {
	for _, dir := range g.Dirs {
		return path.Base(dir)
	}
	return ""
}

func (s Source) volumes(p *corev1.Pod) (all []stats.Volume) {
	mounted := s.Mounts.Mounted(p.UID)
	for _, v := range p.Spec.Volumes {
		m, ok := mounted[v.Name]
		if !ok {
			continue
		}
		one := stats.Volume{Name: v.Name, Path: m.Path, Block: m.Block,
			Ephemeral: pod.StoresLocally(v)}
		switch {
		case v.PersistentVolumeClaim != nil:
			one.Claim = &statsapi.PVCReference{Namespace: p.Namespace, Name: v.PersistentVolumeClaim.ClaimName}
		case v.Ephemeral != nil:
			one.Claim = &statsapi.PVCReference{Namespace: p.Namespace, Name: p.Name + "-" + v.Name}
		case v.HostPath != nil, v.Image != nil:
			continue // their files do not belong to the pod
		}
		all = append(all, one)
	}
	return all
}

// Named returns the cgroups that the configuration names only for the statistics.
func Named(c *config.Config) map[string]string {
	return map[string]string{
		statsapi.SystemContainerRuntime: c.Runtime.Cgroups,
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

// listener returns the id of the process that listens on a socket (SO_PEERCRED in unix(7)). It returns 0 if the process
// is unknown, or if it is the init process, which listens on behalf of other processes.
func listener(endpoint string) int {
	path, ok := strings.CutPrefix(endpoint, "unix://")
	if !ok {
		return 0
	}
	at, err := unixsocket.At(path)
	if err != nil {
		return 0
	}
	defer at.Close()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: at.Short, Net: "unix"})
	if err != nil {
		return 0
	}
	defer func() { _ = c.Close() }() // no data was sent
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
	sizes, err := s.Disk.Layers(ctx)
	all := make(map[string]stats.Layer, len(sizes))
	for id, u := range sizes {
		all[id] = stats.Layer{Bytes: uint64(u.Bytes), Inodes: uint64(u.Inodes)}
	}
	return all, err
}

// Stores implements stats.Source.
func (s Source) Stores(ctx context.Context) (images, layers stats.Store, err error) {
	i, l, err := cri.FileSystems(ctx, s.CRI.Images)
	if err != nil {
		return images, layers, err
	}
	return storeOf(i), storeOf(l), nil
}

func storeOf(f *runtimeapi.FilesystemUsage) stats.Store {
	return stats.Store{Dir: f.GetFsId().GetMountpoint(), Bytes: f.GetUsedBytes().GetValue(),
		Inodes: f.GetInodesUsed().GetValue()}
}

// Commands runs commands and makes checkpoints through the CRI.
type Commands struct {
	CRI *cri.Client
}

// Run implements https.Runtime.
func (c Commands) Run(ctx context.Context, p *corev1.Pod, container string, command []string) ([]byte, error) {
	r, err := c.CRI.Runtime.ExecSync(ctx,
		&runtimeapi.ExecSyncRequest{ContainerId: stream.ContainerID(p, container), Cmd: command})
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
		ContainerId: stream.ContainerID(p, container), Location: path, Timeout: int64(timeout.Seconds()),
	})
	return err
}
