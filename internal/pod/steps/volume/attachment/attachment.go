package attachment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/pod/worker"
)

// Poll asks again after firstPoll, and in the end every Pause. After timeout a step fails with what it waits for, which
// the pod's events show, and starts over.
const (
	firstPoll = 200 * time.Millisecond
	timeout   = 15 * time.Second

	// Pause is the longest pause between two tries.
	Pause = 5 * time.Second
)

// ErrNotYet is the error of Poll for a volume that was not attached in time.
var ErrNotYet = errors.New("not attached in time")

// Options of a Table. Fields are required unless they say otherwise.
type Options struct {
	// Root is the agent's directory.
	Root string
	// Node is this node's name.
	Node string
	// Nodes has the Node object of this node. A volume is used only once the API server has accepted it in
	// status.volumesInUse. nil: there is no such check.
	Nodes *store.Table[string, *corev1.Node]
	// StandsIn reports that the API server has been unreachable since the agent started. nil: never.
	StandsIn *atomic.Bool
	// InUseChanged is raised when InUse has changed, so that the Node's status is written soon.
	InUseChanged wake.Signal
	Now          func() time.Time
}

// Table has the volumes in use. Make it with New. Its methods may be called from any goroutine.
type Table struct {
	o Options

	mu sync.Mutex
	// inUse are the attached volumes. restored is set if inUse includes the volumes of an earlier agent.
	inUse       map[corev1.UniqueVolumeName]bool
	restored    bool
	nodeChanged wake.Broadcast
}

// New makes a Table without volumes. It does no I/O.
func New(o Options) *Table {
	return &Table{o: o, inUse: map[corev1.UniqueVolumeName]bool{}}
}

// InUse returns the volumes for the Node's status.volumesInUse: they must stay attached. known is false until Restore
// was called.
func (t *Table) InUse() (volumes []corev1.UniqueVolumeName, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.inUse)), t.restored
}

// NodeChanged ends the pauses of Poll, after a change of the Node's status. It does not block.
func (t *Table) NodeChanged() { t.nodeChanged.Wake() }

// Restore adds the volumes of an earlier agent: those in names, and those in files of shared parts.
func (t *Table) Restore(names []corev1.UniqueVolumeName) {
	files, _ := filepath.Glob(file(filepath.Join(t.o.Root, "plugins", "*", "*", "*"))) // the pattern is valid
	for _, name := range files {
		if text, err := safepath.ReadFile(name, 1, maxName); err == nil {
			names = append(names, corev1.UniqueVolumeName(text))
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range names {
		t.inUse[name] = true
	}
	t.restored = true
}

// SetInUse adds a volume to those in use, or removes it.
func (t *Table) SetInUse(name corev1.UniqueVolumeName, used bool) {
	t.mu.Lock()
	changed := t.inUse[name] != used
	if used {
		t.inUse[name] = true
	} else {
		delete(t.inUse, name)
	}
	t.mu.Unlock()
	if changed {
		t.o.InUseChanged.Wake()
	}
}

// Reported reports whether the API server knows that the node uses a volume.
func (t *Table) Reported(name corev1.UniqueVolumeName) bool {
	if t.o.Nodes == nil {
		return true
	}
	n, ok := t.o.Nodes.Get(t.o.Node)
	return ok && slices.Contains(n.Status.VolumesInUse, name)
}

// Poll calls attached until it returns true or an error, or until 15 s have passed. Its pauses double, and a change of
// the Node ends a pause.
func (t *Table) Poll(ctx context.Context, attached func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, ErrNotYet)
	defer cancel()
	for pauses := retry.Doubling(firstPoll, Pause); ; {
		nodeChanged := t.nodeChanged.C()
		done, err := attached(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if done || err != nil {
			return err
		}
		timer := time.NewTimer(pauses.Step())
		select {
		case <-timer.C:
		case <-nodeChanged:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// Attached reports a volume as in use, and waits until a controller has attached it. It returns the device, which is
// empty if the controller knows none. stage is the stage directory of the volume's shared part.
func (t *Table) Attached(ctx context.Context, name corev1.UniqueVolumeName, stage string) (device string, err error) {
	if err := checkpoint.Replace(file(stage), []byte(name)); err != nil {
		return "", err
	}
	t.SetInUse(name, true)
	if t.o.StandsIn != nil && t.o.StandsIn.Load() { // the volume may be attached to another node by now
		return "", worker.RetryAt(t.o.Now().Add(Pause),
			fmt.Errorf("waiting for the API server, which is away, to confirm that volume %s is attached to this node",
				name))
	}
	if t.o.Nodes == nil {
		return "", nil
	}
	waitsFor := fmt.Errorf("volume %s has not been added to the list of VolumesInUse in the node's volume status", name)
	err = t.Poll(ctx, func(context.Context) (bool, error) {
		if !t.Reported(name) {
			return false, nil
		}
		waitsFor = fmt.Errorf("volume %s is not in the node's status.volumesAttached: waiting for the attach/detach "+
			"controller", name)
		n, _ := t.o.Nodes.Get(t.o.Node)
		at := slices.IndexFunc(n.Status.VolumesAttached, func(v corev1.AttachedVolume) bool { return v.Name == name })
		if at >= 0 {
			device = n.Status.VolumesAttached[at].DevicePath
		}
		return at >= 0, nil
	})
	if errors.Is(err, ErrNotYet) {
		return "", worker.RetryAt(t.o.Now().Add(time.Second), waitsFor)
	}
	return device, err
}

// Release lets the controller detach a volume. Without a name it is the volume that Attached was last called for with
// this stage. It is idempotent.
func (t *Table) Release(name corev1.UniqueVolumeName, stage string) error {
	if name == "" {
		text, err := safepath.ReadFile(file(stage), 1, maxName)
		if err != nil {
			return safepath.IgnoreMissing(err)
		}
		name = corev1.UniqueVolumeName(text)
	}
	t.SetInUse(name, false)
	return checkpoint.Remove(file(stage))
}

// maxName is the longest name of a volume in bytes.
const maxName = 64 << 10

// file has the name of a volume that a controller attaches.
func file(stage string) string { return filepath.Join(filepath.Dir(stage), "attached") }
