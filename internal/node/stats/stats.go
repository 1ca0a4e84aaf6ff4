package stats

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/node/machine"
)

// Container is one container that runs.
type Container struct {
	Name, ID, Image string
	// RuntimeName is what the runtime calls it: its id, for most.
	RuntimeName string
	Group       cgroupfile.Group
	// Path is that of the cgroup below its hierarchy.
	Path    string
	Started time.Time
}

// Volume is a directory of a pod on the host, or a device.
type Volume struct {
	Name, Path string
	// Block is a device (volumeMode Block).
	Block bool
	// Claim is set for a volume of a PersistentVolumeClaim.
	Claim *statsapi.PVCReference
	// Ephemeral volumes count as the pod's ephemeral storage: emptyDir on disk.
	Ephemeral bool
}

// Pod is one pod that runs.
type Pod struct {
	Namespace, Name string
	UID             types.UID
	Started         time.Time
	Group           cgroupfile.Group
	// Path is that of the cgroup below its hierarchy.
	Path string
	// HostNetwork pods have no network of their own to count.
	HostNetwork bool
	// Sandbox is what holds the pod's network: it has no Name, and the image of the
	// pause container. Its Group is not read. Zero where it is not known.
	Sandbox    Container
	Containers []Container
	Volumes    []Volume
	// Logs is the directory of its containers' logs.
	Logs string
}

// Part is a part of the system beside the containers: a cgroup, or what a process is
// in.
type Part struct {
	Group cgroupfile.Group
	// PID, where it is not 0, is that of a process whose cgroup is meant instead. Of
	// one that is in no cgroup below the machine's own, the process alone is told.
	PID int
}

// Layer is what a container has written over its image.
type Layer struct{ Bytes, Inodes uint64 }

// Source is what the agent knows of the node.
type Source interface {
	// Pods are those with a running sandbox.
	Pods() []Pod
	// System are the agent, the runtime and all pods, by the names of the summary
	// (statsapi.SystemContainer*), as far as they are known: "pods" always, "kubelet"
	// for the agent, and "runtime" where that is another process whose socket tells
	// which. A runtime that is embedded is in "kubelet".
	System() map[string]Part
	// Layers are the sizes of the running containers' own files, by container id.
	Layers(context.Context) (map[string]Layer, error)
	// Images is what the image store takes, and the directory it is in.
	Images(context.Context) (bytes, inodes uint64, dir string, err error)
}

// Identity of a machine, as the Node's status has it.
type Identity struct{ MachineID, SystemUUID, BootID string }

// Options of Stats. All are required but Told.
type Options struct {
	Node   string
	Source Source
	// Root is the cgroup of the whole machine.
	Root    cgroupfile.Group
	Machine machine.Machine
	// Identity is what tells the machine from others.
	Identity Identity
	// Capacity of the node, of which its memory counts.
	Capacity corev1.ResourceList
	// Dir is on the node's own file system.
	Dir string
	// Host is where proc is looked for: /.
	Host string
	// Told is what a driver says of the volume at a path, nil while it says nothing;
	// ok is false for one that is to be measured. nil: no driver tells of any.
	Told func(path string) (f *statsapi.FsStats, ok bool)
	// VolumePeriod is volumeStatsAggPeriod, for which what was measured of a volume or
	// a directory is told again; less than 0: volumes are not measured.
	VolumePeriod time.Duration
	Now          func() time.Time
	Log          *slog.Logger
}

// Stats answers questions about what is used. Its methods may be called from any
// goroutine.
type Stats struct {
	Options
	rates rates
	sizes sizes
}

// New makes a Stats.
func New(o Options) *Stats {
	return &Stats{Options: o, rates: rates{last: map[string]point{}}, sizes: sizes{known: map[string]*size{}}}
}

// point is the CPU time that was used up to a moment.
type point struct {
	at    time.Time
	usage uint64 // ns
	rate  *uint64
}

// rates turns CPU time into CPU by what was seen the last time. Of what is seen for
// the first time there is one if it has just begun: that since its start.
type rates struct {
	mu   sync.Mutex
	last map[string]point
}

// leastInterval is the shortest time that a rate is made of. Within it, the one of
// before is told.
const leastInterval = 500 * time.Millisecond

// begun is for how long what has started is new: the CPU time of all its life then
// says what it uses.
const begun = time.Minute

func (r *rates) next(key string, at time.Time, usage uint64, started time.Time) *uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, known := r.last[key]
	if !known && at.Sub(started) < begun {
		was, known = point{at: started}, true
	}
	if known && at.Sub(was.at) < leastInterval {
		return was.rate
	}
	now := point{at: at, usage: usage}
	if known && usage >= was.usage {
		now.rate = new(uint64(float64(usage-was.usage) / at.Sub(was.at).Seconds()))
	}
	r.last[key] = now
	return now.rate
}

// keep forgets what was not asked about since before.
func (r *rates) keep(before time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, p := range r.last {
		if p.at.Before(before) {
			delete(r.last, key)
		}
	}
}
