package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/event"
	"github.com/berth-run/berth/internal/pod"
	"github.com/berth-run/berth/internal/reason"
	"github.com/berth-run/berth/internal/safepath"
	"github.com/berth-run/berth/internal/timeline"
	"github.com/berth-run/berth/internal/worker"
)

// Kind is one kind of volume source. Publish and Unpublish are what CSI calls
// so: the part that is done for each pod. A kind with a part that the pods of a
// node share does that inside, counting its users.
type Kind interface {
	// Dir is the kind's directory below the pod's volumes, spelled as the
	// kubelet spells the plugin, e.g. kubernetes.io~empty-dir. "" for a kind
	// that leaves nothing there.
	Dir() string
	// Serves says whether the volume is of this kind.
	Serves(v *corev1.Volume) bool
	// Publish makes the volume usable and returns its path on the host: a
	// directory, or a file or device where the source names one. It is
	// idempotent. The directory around Target is there.
	Publish(ctx context.Context, r Request) (path string, err error)
	// Unpublish undoes the Publish of this or an earlier process, and removes
	// target. It is idempotent.
	Unpublish(ctx context.Context, target string) error
}

// Request is one volume of one pod.
type Request struct {
	Pod    *corev1.Pod
	Volume *corev1.Volume
	// Target is the volume's place in the pod's directory.
	Target string
}

type events interface {
	Event(ref corev1.ObjectReference, eventType, reason, format string, args ...any)
}

// Config of Volumes.
type Config struct {
	// Root is the agent's directory; pods are in <Root>/pods.
	Root string
	// Kinds are asked in order.
	Kinds  []Kind
	Events events
}

// Volumes mounts the volumes of all pods.
type Volumes struct {
	cfg Config

	mu    sync.Mutex
	paths map[types.UID]map[string]string // by volume name
}

// New makes a Volumes. It looks at nothing.
func New(c Config) *Volumes {
	return &Volumes{cfg: c, paths: map[types.UID]map[string]string{}}
}

// Step is the volumes' place in a pod's life.
func (v *Volumes) Step() worker.Step {
	return worker.Step{
		Name: "volume", Phase: worker.Prepare, After: []string{"poddir", "cgroup"},
		Setup:    func(ctx context.Context, r *worker.Run) error { return v.setup(ctx, r.Pod.Pod) },
		Teardown: func(ctx context.Context, r *worker.Run) error { return v.Remove(ctx, r.Pod.UID) },
	}
}

// Path is where a volume of the pod is on the host, once it is mounted.
func (v *Volumes) Path(uid types.UID, volumeName string) (hostPath string, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	hostPath, ok = v.paths[uid][volumeName]
	return hostPath, ok
}

// setup mounts all volumes that a container of the pod uses, at once.
func (v *Volumes) setup(ctx context.Context, p *corev1.Pod) error {
	used := usedVolumes(p)
	errs := make([]error, len(p.Spec.Volumes))
	var wg sync.WaitGroup
	for i := range p.Spec.Volumes {
		if volume := &p.Spec.Volumes[i]; used[volume.Name] {
			wg.Go(func() { errs[i] = v.mount(ctx, p, volume) })
		}
	}
	wg.Wait()
	return reason.Wrap(reason.FailedMount, errors.Join(errs...))
}

func (v *Volumes) mount(ctx context.Context, p *corev1.Pod, volume *corev1.Volume) (err error) {
	ctx, span := timeline.Start(ctx, "volume "+volume.Name)
	defer func() { timeline.End(span, err) }()
	path, err := v.publish(ctx, p, volume)
	if err != nil {
		if ctx.Err() == nil {
			v.cfg.Events.Event(event.PodRef(p), corev1.EventTypeWarning, reason.FailedMount,
				"MountVolume.SetUp failed for volume %q : %v", volume.Name, err)
		}
		return fmt.Errorf("mount volume %q: %w", volume.Name, err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.paths[p.UID] == nil {
		v.paths[p.UID] = map[string]string{}
	}
	v.paths[p.UID][volume.Name] = path
	return nil
}

func (v *Volumes) publish(ctx context.Context, p *corev1.Pod, volume *corev1.Volume) (string, error) {
	dir, err := v.podDir(p.UID)
	if err != nil {
		return "", err
	}
	if err := safepath.Name(volume.Name); err != nil {
		return "", err
	}
	for _, k := range v.cfg.Kinds {
		if !k.Serves(volume) {
			continue
		}
		r := Request{Pod: p, Volume: volume}
		if k.Dir() != "" {
			r.Target = filepath.Join(dir, volumesDir, k.Dir(), volume.Name)
			if err := os.MkdirAll(filepath.Dir(r.Target), 0o750); err != nil {
				return "", err
			}
		}
		return k.Publish(ctx, r)
	}
	return "", errors.New("its source is of a kind that this agent does not mount")
}

// usedVolumes are the names of the volumes that a container mounts: what no
// container uses is not mounted, so that it cannot fail.
func usedVolumes(p *corev1.Pod) map[string]bool {
	used := map[string]bool{}
	for _, c := range pod.Containers(p) {
		for _, m := range c.VolumeMounts {
			used[m.Name] = true
		}
		for _, d := range c.VolumeDevices {
			used[d.Name] = true
		}
	}
	return used
}

const (
	volumesDir  = "volumes"
	subPathsDir = "volume-subpaths"
)

func (v *Volumes) podDir(uid types.UID) (string, error) {
	if err := safepath.Name(string(uid)); err != nil {
		return "", fmt.Errorf("use the pod's UID: %w", err)
	}
	return filepath.Join(v.cfg.Root, "pods", string(uid)), nil
}

// Remove takes away everything that is mounted for a pod, whoever mounted it.
// It goes by what is found, so that it serves pods of which no more is known
// than the UID.
func (v *Volumes) Remove(ctx context.Context, uid types.UID) error {
	dir, err := v.podDir(uid)
	if err != nil {
		return err
	}
	v.mu.Lock()
	delete(v.paths, uid)
	v.mu.Unlock()
	subPaths := filepath.Join(dir, subPathsDir)
	if err := Unmount(subPaths); err != nil {
		return err
	}
	if err := safepath.RemoveAll(ctx, subPaths); err != nil {
		return err
	}
	targets, err := list(filepath.Join(dir, volumesDir))
	if err != nil {
		return err
	}
	var errs []error
	for _, target := range targets {
		if err := v.unpublish(ctx, target); err != nil {
			errs = append(errs, fmt.Errorf("unmount volume %q: %w", filepath.Base(target), err))
		}
	}
	return errors.Join(errs...)
}

// list returns the volumes on disk: what is two levels below dir.
func list(dir string) ([]string, error) {
	kinds, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var targets []string
	for _, kind := range kinds {
		if !kind.IsDir() {
			continue
		}
		volumes, err := os.ReadDir(filepath.Join(dir, kind.Name()))
		if err != nil {
			return nil, err
		}
		for _, v := range volumes {
			targets = append(targets, filepath.Join(dir, kind.Name(), v.Name()))
		}
	}
	return targets, nil
}

func (v *Volumes) unpublish(ctx context.Context, target string) error {
	dir := filepath.Base(filepath.Dir(target))
	for _, k := range v.cfg.Kinds {
		if k.Dir() == dir {
			return k.Unpublish(ctx, target)
		}
	}
	// Of a kind that is not known here, left by another agent or an older one.
	// Its content may be somebody's data: nothing but the mount is undone.
	if err := Unmount(target); err != nil {
		return err
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("it is a %s, which this agent does not know: look at what is in it and remove it: %w", dir, err)
	}
	return nil
}
