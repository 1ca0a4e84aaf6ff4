package stats

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berth-run/berth/internal/cgroupfile"
	"github.com/berth-run/berth/internal/machine"
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

// Volume is a directory of a pod on the host.
type Volume struct {
	Name, Path string
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

// Layer is what a container has written over its image.
type Layer struct{ Bytes, Inodes uint64 }

// Source is what the agent knows of the node.
type Source interface {
	// Pods are those with a running sandbox.
	Pods() []Pod
	// System are the cgroups of the agent, the runtime and all pods, by the names of
	// the summary (statsapi.SystemContainer*), as far as there are any.
	System() map[string]cgroupfile.Group
	// Layers are the sizes of the running containers' own files, by container id.
	Layers(context.Context) (map[string]Layer, error)
	// Images is what the image store takes, and the directory it is in.
	Images(context.Context) (bytes, inodes uint64, dir string, err error)
}

// Identity of a machine, as the Node's status has it.
type Identity struct{ MachineID, SystemUUID, BootID string }

// Options of Stats. All are required.
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
	// VolumePeriod is volumeStatsAggPeriod; less than 0: volumes are not measured.
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
	return &Stats{Options: o, rates: rates{last: map[string]point{}}, sizes: sizes{known: map[string]size{}}}
}

// point is the CPU time that was used up to a moment.
type point struct {
	at    time.Time
	usage uint64 // ns
	rate  *uint64
}

// rates turns CPU time into CPU by what was seen the last time. There is none for
// what is seen for the first time.
type rates struct {
	mu   sync.Mutex
	last map[string]point
}

// leastInterval is the shortest time that a rate is made of. Within it, the one of
// before is told.
const leastInterval = 500 * time.Millisecond

func (r *rates) next(key string, at time.Time, usage uint64) *uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, known := r.last[key]
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
