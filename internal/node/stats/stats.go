package stats

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/base/rate"
	"github.com/berth-run/berth/internal/node/machine"
)

// Container is one running container.
type Container struct {
	Name, ID, Image string
	// RuntimeName is the runtime's name for it, for most runtimes the ID.
	RuntimeName string
	Group       cgroupfile.Group
	// Path of the cgroup below its hierarchy.
	Path    string
	Started time.Time
}

// Volume is a directory of a pod on the host, or a block device.
type Volume struct {
	Name, Path string
	// Block is true for a device (volumeMode Block).
	Block bool
	// Claim is set for a volume of a PersistentVolumeClaim.
	Claim *statsapi.PVCReference
	// Ephemeral volumes count as the pod's ephemeral storage: emptyDir on disk and ConfigMap.
	Ephemeral bool
}

// Pod is one running pod.
type Pod struct {
	Namespace, Name string
	UID             types.UID
	Started         time.Time
	Group           cgroupfile.Group
	// Path of the cgroup below its hierarchy.
	Path string
	// HostNetwork pods have no network counters of their own.
	HostNetwork bool
	// Sandbox holds the pod's network. It has no Name, and an Image only if the runtime uses one for sandboxes. Its
	// Group is not read. Zero if it is unknown.
	Sandbox    Container
	Containers []Container
	Volumes    []Volume
	// Logs is the directory of its containers' log directories.
	Logs string
}

// Part is a part of the system besides the containers, given by a cgroup or by a process.
type Part struct {
	Group cgroupfile.Group
	// PID, if not 0, is a process whose cgroup is used instead of Group. If that is the root cgroup, only the process
	// itself is counted.
	PID int
}

// Layer is the size of a container's writable layer.
type Layer struct{ Bytes, Inodes uint64 }

// Source provides the agent's knowledge of the node.
type Source interface {
	// Pods returns the pods with a running sandbox.
	Pods() []Pod
	// System returns the agent, the runtime and all pods, by their names in the summary (statsapi.SystemContainer*).
	// "pods" is always there. "kubelet" is the agent. "runtime" is there if the runtime is another process, known by
	// its socket; an embedded runtime is part of "kubelet".
	System() map[string]Part
	// Layers returns the writable layers of the running containers by container ID.
	Layers(context.Context) (map[string]Layer, error)
	// Stores returns where the runtime keeps images and writable layers.
	Stores(context.Context) (images, layers Store, err error)
}

// Store is a directory of the runtime with what it uses there.
type Store struct {
	Dir           string
	Bytes, Inodes uint64
}

type drivers interface {
	// VolumeUsage returns the usage that a CSI driver reports for the volume at a path. ok is false if the volume must
	// be measured instead; f is nil while the driver has not reported anything.
	VolumeUsage(path string) (f *statsapi.FsStats, ok bool)
	// VolumeAbnormal reports whether the driver of the volume at a path says that the volume is in an abnormal
	// condition. known is false if the driver reports no condition.
	VolumeAbnormal(path string) (abnormal, known bool)
}

// Options of Stats. All are required except Drivers.
type Options struct {
	Node   string
	Source Source
	// Root is the cgroup of the whole machine.
	Root    cgroupfile.Group
	Machine machine.Machine
	// Identity is the identity of the machine in the Node's status.
	Identity corev1.NodeSystemInfo
	// Capacity of the node. Only its memory is used.
	Capacity corev1.ResourceList
	// Dir is a directory on the node's own file system.
	Dir string
	// Host is the root below which proc and sys are mounted: /.
	Host string
	// Drivers has the usage of volumes of CSI drivers. Nil: no driver reports usage.
	Drivers drivers
	// VolumePeriod is volumeStatsAggPeriod: how long the measurement of a volume or directory is reused. Below 0,
	// volumes are not measured.
	VolumePeriod time.Duration
	Now          func() time.Time
	Log          *slog.Logger
}

// Stats measures usage on request. Its methods may be called from any goroutine.
type Stats struct {
	Options
	rates *rate.Rates
	sizes sizes
	took  *prometheus.HistogramVec // measuring a volume, by how
}

// New returns Stats that has measured nothing yet.
func New(o Options) *Stats {
	return &Stats{Options: o, rates: rate.New(), sizes: sizes{known: map[string]*size{}},
		took: newTook()}
}
