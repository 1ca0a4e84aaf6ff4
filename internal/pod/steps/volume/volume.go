package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	mountutils "k8s.io/mount-utils"

	"github.com/berth-run/berth/internal/base/guard"
	"github.com/berth-run/berth/internal/base/lock"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/model/intree"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/worker"
	"github.com/berth-run/berth/internal/record/event"
	"github.com/berth-run/berth/internal/record/timeline"
)

// Config of Volumes.
type Config struct {
	// Root is the agent's directory; pods are in <Root>/pods.
	Root string
	// Kinds is in order: the first kind that serves a volume mounts it.
	Kinds []Kind
	// Claims finds the PersistentVolumes of claims. nil: no volume is a claim.
	Claims Claims
	Events event.Sink
}

// Volumes mounts the volumes of all pods.
type Volumes struct {
	cfg     Config
	metrics metrics
	shares  *shares
	owner   owner
	remote  lock.Keyed // by mount path

	mu      sync.Mutex
	mounted map[types.UID]map[string]mounted // by volume name
}

// mounted is a volume whose Publish has succeeded.
type mounted struct {
	pod.Volume
	kind    Kind
	request Request
	remote  bool
}

// New makes a Volumes. It does no I/O.
func New(c Config) *Volumes {
	return &Volumes{cfg: c, metrics: newMetrics(), shares: &shares{root: c.Root, kinds: c.Kinds},
		owner: owner{c.Events}, mounted: map[types.UID]map[string]mounted{}}
}

// Step returns the step of a pod's life that mounts its volumes.
func (v *Volumes) Step() worker.Step {
	return worker.Step{
		Name: "volume", Phase: worker.Prepare, After: []string{"poddir", "cgroup"},
		Setup: func(ctx context.Context, r *worker.Run) error { return v.setup(ctx, r.Pod.Pod) },
		Teardown: func(ctx context.Context, r *worker.Run) error {
			err := v.Remove(ctx, r.Pod.UID)
			if err != nil && ctx.Err() == nil {
				warn(v.cfg.Events, r.Pod.Pod, reason.FailedUnmount, "%v", err)
			}
			return err
		},
	}
}

// Adopt writes the user files of volumes that only an Adopter knows. Call it before any pod is set up or removed. The
// removal of a pod then undoes the parts that it alone uses, and no others.
func (v *Volumes) Adopt() error { return v.shares.Adopt() }

// Orphans returns the users of shared parts that known does not know.
func (v *Volumes) Orphans(known func(types.UID) bool) ([]types.UID, error) {
	return v.shares.Orphans(known)
}

// Path returns the path of a mounted volume on the host.
func (v *Volumes) Path(uid types.UID, volumeName string) (hostPath string, ok bool) {
	m, ok := v.get(uid, volumeName)
	return m.Path, ok
}

// Mounted returns the pod's mounted volumes by name.
func (v *Volumes) Mounted(uid types.UID) map[string]pod.Volume {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := map[string]pod.Volume{}
	for name, m := range v.mounted[uid] {
		all[name] = m.Volume
	}
	return all
}

func (v *Volumes) get(uid types.UID, volumeName string) (mounted, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	m, ok := v.mounted[uid][volumeName]
	return m, ok
}

// setup mounts all volumes that the pod's containers use, at the same time.
func (v *Volumes) setup(ctx context.Context, p *corev1.Pod) error {
	used := usedVolumes(p)
	errs := make([]error, len(p.Spec.Volumes))
	var wg guard.Group
	for i := range p.Spec.Volumes {
		volume := &p.Spec.Volumes[i]
		if block, ok := used[volume.Name]; ok {
			wg.Go(func() { errs[i] = v.mount(ctx, Request{Pod: p, Volume: volume, Block: block}) })
		}
	}
	wg.Wait()
	return reason.Wrap(reason.FailedMount, errors.Join(errs...))
}

func (v *Volumes) mount(ctx context.Context, r Request) (err error) {
	p, name := r.Pod, r.Volume.Name
	ctx, span := timeline.Start(ctx, "volume "+name)
	defer func() { timeline.End(span, err) }()
	done, err := v.publish(ctx, r)
	if err != nil {
		if ctx.Err() == nil && !object.Unanswered(err) {
			v.reportFailure(r, err)
		}
		return fmt.Errorf("mount volume %q: %w", name, err)
	}
	if _, before := v.get(p.UID, name); r.Block && !before {
		v.cfg.Events.Event(event.PodRef(p), corev1.EventTypeNormal, reason.SuccessfulMountVolume,
			"MapVolume.MapPodDevice succeeded for volume %q volumeMapPath %q", name, filepath.Dir(done.request.Target))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mounted[p.UID] == nil {
		v.mounted[p.UID] = map[string]mounted{}
	}
	v.mounted[p.UID][name] = done
	return nil
}

// reportFailure records the event of a failed mount.
func (v *Volumes) reportFailure(r Request, err error) {
	what, why := "MountVolume.SetUp", reason.FailedMount
	if r.Block {
		what, why = "MapVolume.MapBlockVolume", reason.FailedMapVolume
	}
	v.cfg.Events.Event(event.PodRef(r.Pod), corev1.EventTypeWarning, why, what+" failed for volume %q : %v",
		r.Volume.Name, err)
}

// reportMismatch records an event of a PersistentVolume whose device has another file system than it names.
func (v *Volumes) reportMismatch(pv *corev1.PersistentVolume, err error) {
	wrong, ok := errors.AsType[mountutils.MountError](err)
	if !ok || wrong.Type != mountutils.FilesystemMismatch || pv == nil {
		return
	}
	ref := corev1.ObjectReference{Kind: "PersistentVolume", APIVersion: "v1", Name: pv.Name, UID: pv.UID}
	v.cfg.Events.Event(ref, corev1.EventTypeWarning, reason.FailedMountOnFilesystemMismatch,
		"MountVolume failed for volume %q %v", pv.Name, err)
}

func (v *Volumes) publish(ctx context.Context, r Request) (done mounted, err error) {
	dir, err := v.podDir(r.Pod.UID)
	if err != nil {
		return done, err
	}
	if err := safepath.Name(r.Volume.Name); err != nil {
		return done, err
	}
	if err := v.resolve(ctx, &r); err != nil {
		return done, err
	}
	k, err := v.kindOf(r)
	if err != nil {
		return done, err
	}
	begin := time.Now()
	defer func() {
		v.metrics.observe(operation{k.Dir(), "volume_mount", r.Migrated}, begin, err)
		v.reportMismatch(r.Persistent, err)
	}()
	features := featuresOf(k, r)
	r.ReadOnly = r.ReadOnly || features.ReadOnly
	if r.Block && !features.Block {
		return done,
			errors.New("a container has the volume in volumeDevices, but it cannot be a block device: use volumeMounts")
	}
	if kindDir := dirOf(k, r); kindDir != "" {
		below := volumesDir
		if r.Block {
			below = devicesDir
		}
		name := r.Volume.Name
		if t, ok := k.(Targeted); ok {
			name = t.TargetName(r)
		}
		if err := safepath.Name(name); err != nil {
			return done, err
		}
		if err := safepath.Name(kindDir); err != nil {
			return done, err
		}
		r.Target = filepath.Join(dir, below, kindDir, name)
		if err := os.MkdirAll(filepath.Dir(r.Target), 0o750); err != nil {
			return done, err
		}
	}
	if s, ok := k.(Stager); ok {
		if err := v.shares.stage(ctx, s, &r); err != nil {
			return done, err
		}
	}
	path, err := k.Publish(ctx, r)
	if err != nil {
		return done, err
	}
	features = featuresOf(k, r) // the kind may know more after Publish
	if features.FSGroup && !r.Block && !r.ReadOnly {
		if err := v.owner.own(ctx, r, path); err != nil {
			return done, err
		}
	}
	groups, err := groupsOf(r.Persistent)
	view := pod.Volume{Path: path, Block: r.Block, ReadOnly: r.ReadOnly, HostLabels: features.HostLabels,
		Groups: groups}
	if features.Image {
		view.Path, view.Image = "", path
	}
	return mounted{Volume: view, kind: k, request: r, remote: features.Remote}, err
}

// resolve finds the PersistentVolume of a volume that is a claim, and translates a volume that migrates to CSI.
func (v *Volumes) resolve(ctx context.Context, r *Request) error {
	claim := r.Volume.PersistentVolumeClaim
	if claim == nil && r.Volume.Ephemeral == nil {
		migrated, ok, err := intree.Inline(r.Volume, r.Pod.Namespace)
		r.Persistent, r.Migrated = migrated, ok
		return err
	}
	if v.cfg.Claims == nil {
		return errors.New("the volume is a claim, and this agent serves no claims")
	}
	var err error
	if r.Persistent, err = v.cfg.Claims.Bound(ctx, r.Pod, r.Volume); err != nil {
		return err
	}
	if migrated, ok, err := intree.Persistent(r.Persistent); err != nil {
		return err
	} else if ok {
		r.Persistent, r.Migrated = migrated, true
	}
	r.ReadOnly = claim != nil && claim.ReadOnly
	mode := r.Persistent.Spec.VolumeMode
	isBlock := mode != nil && *mode == corev1.PersistentVolumeBlock
	switch {
	case r.Block && !isBlock:
		return fmt.Errorf("volume %s has volumeMode Filesystem, but is specified in volumeDevices", r.Volume.Name)
	case isBlock && !r.Block:
		return fmt.Errorf("volume %s has volumeMode Block, but is specified in volumeMounts", r.Volume.Name)
	}
	return nil
}

func (v *Volumes) kindOf(r Request) (Kind, error) {
	for _, k := range v.cfg.Kinds {
		if r.Persistent == nil {
			if k.Serves(r.Volume) {
				return k, nil
			}
		} else if p, ok := k.(Persistent); ok && p.ServesPersistent(r.Persistent) {
			return k, nil
		}
	}
	if r.Persistent != nil {
		return nil,
			fmt.Errorf(
				"this agent does not mount the source of PersistentVolume %q: use one of hostPath, local, nfs, "+
					"iscsi, fc, flexVolume or csi",
				r.Persistent.Name)
	}
	return nil, errors.New("this agent does not mount the volume's source")
}

// dirOf returns the name of the volume's directory below the pod's volumes, or "" for a kind without one.
func dirOf(k Kind, r Request) string {
	if b, ok := k.(Branded); ok {
		return b.DirOf(r)
	}
	return k.Dir()
}

func featuresOf(k Kind, r Request) Features {
	if f, ok := k.(Featured); ok {
		return f.Features(r)
	}
	return Features{}
}

// usedVolumes returns the volumes that the pod's containers use, and whether as a block device. Other volumes are not
// mounted, so that they cannot fail. A variable from a file uses the file's volume (KEP-3721); the container step finds
// the file, which may be optional.
func usedVolumes(p *corev1.Pod) (block map[string]bool) {
	block = map[string]bool{}
	for _, c := range pod.Containers(p) {
		for _, e := range c.Env {
			if e.ValueFrom != nil && e.ValueFrom.FileKeyRef != nil {
				block[e.ValueFrom.FileKeyRef.VolumeName] = false
			}
		}
		for _, m := range c.VolumeMounts {
			block[m.Name] = false
		}
		for _, d := range c.VolumeDevices {
			block[d.Name] = true
		}
	}
	return block
}

const (
	volumesDir  = "volumes"
	devicesDir  = "volumeDevices"
	subPathsDir = "volume-subpaths"
)

func (v *Volumes) podDir(uid types.UID) (string, error) {
	if err := safepath.Name(string(uid)); err != nil {
		return "", fmt.Errorf("use the pod's UID: %w", err)
	}
	return filepath.Join(v.cfg.Root, "pods", string(uid)), nil
}

// Remove unmounts and deletes everything of a pod's volumes, whoever mounted it. It works from what it finds on disk,
// so that the UID is all it needs to know about a pod.
func (v *Volumes) Remove(ctx context.Context, uid types.UID) error {
	dir, err := v.podDir(uid)
	if err != nil {
		return err
	}
	migrated := map[string]bool{} // by target
	v.mu.Lock()
	for _, m := range v.mounted[uid] {
		migrated[m.request.Target] = m.request.Migrated
	}
	delete(v.mounted, uid)
	v.mu.Unlock()
	subPaths := filepath.Join(dir, subPathsDir)
	if err := Unmount(subPaths); err != nil {
		return err
	}
	if err := safepath.RemoveAll(ctx, subPaths); err != nil {
		return err
	}
	var errs []error
	for _, sub := range []string{volumesDir, devicesDir} {
		targets, err := list(filepath.Join(dir, sub))
		errs = append(errs, err)
		for _, target := range targets {
			begin := time.Now()
			err := v.unpublish(ctx, target)
			v.metrics.observe(operation{filepath.Base(filepath.Dir(target)), "volume_unmount", migrated[target]}, begin,
				err)
			if err != nil {
				errs = append(errs, fmt.Errorf("unmount volume %q: %w", filepath.Base(target), err))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err // this pod still uses the shared parts
	}
	if err := v.shares.release(ctx, uid); err != nil || v.cfg.Claims == nil {
		return err
	}
	return v.cfg.Claims.Released(uid)
}

// list returns the entries two levels below dir, which are volumes or shared parts.
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
		if b, ok := k.(Branded); k.Dir() == dir || ok && b.OwnsDir(dir) {
			return k.Unpublish(ctx, target)
		}
	}
	// Another agent or an older one left a volume of a kind that this agent does not have. Its content may be a user's
	// data, so that only the mount is undone.
	if err := Unmount(target); err != nil {
		return err
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the volume is of the kind %s, which this agent does not have: %w; "+
			"next: look at its content and remove it", dir, err)
	}
	return nil
}
