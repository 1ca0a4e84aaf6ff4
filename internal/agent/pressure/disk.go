package pressure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/diskusage"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/eviction"
	"github.com/berth-run/berth/internal/node/eviction/facts"
	"github.com/berth-run/berth/internal/node/logrotate"
	"github.com/berth-run/berth/internal/pod/steps/image/garbage"
	"github.com/berth-run/berth/internal/pod/worker"
)

// reclaimAgain is the least time between two removals of dead containers and unused images while no pod has ended.
const reclaimAgain = 10 * time.Second

// smallLayer is the size of the largest layer that is not worth the wait until the runtime has freed it.
var smallLayer = diskusage.Usage{Bytes: 1 << 20, Inodes: 100}

// freeLimit is how long a look waits for the runtime to free the layers of removed containers.
const freeLimit = 2 * time.Second

// layoutRetry is the delay before the agent asks the runtime again where it keeps images.
const layoutRetry = 5 * time.Second

// diskPending is the time between two looks while pods end: each look measures the pods.
const diskPending = time.Second

// diskSoonest is the least time between two looks. Disks fill more slowly than memory.
const diskSoonest = 250 * time.Millisecond

// DiskOptions are the options of a Disk. All but Layers are required.
type DiskOptions struct {
	Pods    *Pods
	Policy  eviction.Policy
	Metrics eviction.Metrics
	// Dir is the root directory, on the file system of logs and volumes.
	Dir  string
	CRI  *cri.Client
	Logs logs
	// LogsDir is the directory of the logs of all pods.
	LogsDir string
	// Together counts writable layers as if they lay on the file system of the images.
	Together bool
	Volumes  volumes
	// Layers measures and frees writable layers. It is nil if only the CRI can say how large they are.
	Layers     layers
	Containers deadContainers
	Images     unusedImages
}

type deadContainers interface {
	// RemoveDead removes the dead containers that no pod needs, and all of pods in ended. It returns their ids.
	RemoveDead(ctx context.Context, ended map[types.UID]bool) (removed []string, err error)
}

type unusedImages interface {
	// Reclaim removes the images that no pod uses and records an event with the cause.
	Reclaim(ctx context.Context, cause string) ([]garbage.Image, error)
}

type logs interface {
	// LogDir is the directory of a pod's logs.
	LogDir(*corev1.Pod) string
}

type layers interface {
	// LayerUsage measures the writable layer of a container now.
	LayerUsage(ctx context.Context, container string) (diskusage.Usage, error)
	// FreeLayers waits until the layers of removed containers use no space, or until ctx ends.
	FreeLayers(ctx context.Context) error
}

type volumes interface {
	// Mounted returns the pod's mounted volumes by name.
	Mounted(types.UID) map[string]pod.Volume
}

// Disk are the pods as users of file systems. It implements eviction.Pods and fleet.Watcher. It has a loop of its own,
// because measuring takes time that memory does not have.
type Disk struct {
	o       DiskOptions
	changed wake.Signal
	ended   atomic.Bool // a pod has ended since the last Reclaim
	disks   facts.Disks
	layout  eviction.Disks
	evictor atomic.Pointer[eviction.Evictor] // nil until the file systems are known; layout is valid from then on
	// The fields below are used by the evictor's loop only.
	last    time.Time // of the last removal
	account account
	sizes   map[string]diskusage.Usage // of writable layers, by container
}

// NewDisk makes a Disk that has measured nothing.
func NewDisk(o DiskOptions) *Disk {
	return &Disk{o: o, changed: wake.New(), sizes: map[string]diskusage.Usage{}, account: newAccount()}
}

// silent is an eviction.Alarm: the kernel notifies of no file system.
type silent struct{}

func (silent) Arm(eviction.Signal, eviction.Observation, int64) {}
func (silent) Covers(eviction.Signal) bool                      { return false }
func (silent) C() <-chan struct{}                               { return nil }

// Run evicts pods when file systems run full, until ctx ends.
func (d *Disk) Run(ctx context.Context) error {
	policy := d.o.Policy.Of(corev1.NodeDiskPressure)
	if len(policy.Thresholds) == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	disks, err := d.find(ctx)
	if err != nil {
		return err
	}
	d.disks = disks
	var ignored []eviction.Signal
	if policy.Thresholds, ignored = d.layout.Complete(policy.Thresholds); len(ignored) > 0 {
		d.o.Pods.Log.Warn("thresholds ignored: containers have no file system of their own", "signals", ignored)
	}
	evictor := eviction.New(eviction.Options{Policy: policy, Facts: disks, Alarm: silent{}, Pods: d,
		Ready: d.o.Pods.Fleet.Settled(), Pending: diskPending, Soonest: diskSoonest, Metrics: d.o.Metrics,
		Now: time.Now, Log: d.o.Pods.Log})
	d.evictor.Store(evictor)
	return evictor.Run(ctx)
}

// find asks the runtime for its file systems until it answers.
func (d *Disk) find(ctx context.Context) (disks facts.Disks, err error) {
	for reported := ""; ; {
		if disks, err = d.directories(ctx); err == nil {
			if d.layout, err = disks.Layout(); err == nil {
				return disks, nil
			}
		}
		if ctx.Err() != nil {
			return disks, ctx.Err()
		}
		if text := err.Error(); text != reported {
			reported = text
			d.o.Pods.Log.Warn("cannot find the file systems of the runtime, retrying", "err", err, "retry", layoutRetry)
		}
		if err := retry.Sleep(ctx, layoutRetry); err != nil {
			return disks, err
		}
	}
}

func (d *Disk) directories(ctx context.Context) (facts.Disks, error) {
	images, layers, err := cri.FileSystems(ctx, d.o.CRI.Images)
	if err != nil {
		return facts.Disks{}, err
	}
	if d.o.Together {
		layers = images
	}
	return facts.Disks{Node: d.o.Dir, Image: images.GetFsId().GetMountpoint(),
		Container: layers.GetFsId().GetMountpoint()}, nil
}

// Changed implements eviction.Pods.
func (d *Disk) Changed() <-chan struct{} { return d.changed.C() }

// PodChanged implements fleet.Watcher.
func (d *Disk) PodChanged(types.UID) {
	d.ended.Store(true)
	d.changed.Wake()
}

// SetPressure implements eviction.Pods.
func (d *Disk) SetPressure(hold []corev1.NodeConditionType) {
	d.o.Pods.report([]corev1.NodeConditionType{corev1.NodeDiskPressure}, hold)
}

// Reclaim implements eviction.Pods. It removes dead containers and unused images if they lie on the file system that is
// short. Then it removes as many compressed logs as are needed. Images that were imported by hand stay. Victims free
// their space when their volumes are removed, and the runtime frees layers a while later. Until then no log is removed
// and no other pod ends, unless half of the threshold is gone too.
func (d *Disk) Reclaim(ctx context.Context, c eviction.Crossing) (reclaimed, soon bool) {
	parts := d.layout.Parts(c.Threshold.Signal)
	d.account.review(d.stage, time.Now())
	if parts.Images || parts.Layers {
		again := d.account.dead(time.Now()) || time.Since(d.last) >= reclaimAgain
		if d.ended.Swap(false) || again {
			reclaimed = d.reclaim(ctx, c.Threshold.Signal, parts)
			d.last = time.Now()
		}
		if d.account.unused {
			reclaimed = d.free(ctx) || reclaimed
		}
	}
	soon = d.account.owes(parts.Layers, time.Now()) && c.Seen.Available > c.Limit/2
	if !soon && parts.LogsAndVolumes && d.removeLogs(c) {
		reclaimed = true
	}
	return reclaimed, soon
}

// removeLogs removes compressed logs, oldest first, until enough is free. It reports whether there were any. It looks
// at the file system anew: since the look of the crossing, space may have been freed, also for another signal.
func (d *Disk) removeLogs(c eviction.Crossing) bool {
	missing := c.Shortfall
	seen, _ := d.disks.Observe(time.Now()) // the evictor's next look reports the error
	if now, ok := seen[c.Threshold.Signal]; ok {
		missing -= now.Available - c.Seen.Available
	}
	if missing <= 0 || !d.logsOnNode() {
		return false
	}
	need := logrotate.Space{Bytes: missing}
	if c.Threshold.Signal.Resource() == eviction.Inodes {
		need = logrotate.Space{Files: missing}
	}
	freed, err := logrotate.RemoveOldest(d.o.LogsDir, need)
	if err != nil {
		d.o.Pods.Log.Warn("cannot remove all compressed logs, continuing with pods", "err", err)
	}
	if freed.Files > 0 {
		d.o.Pods.Events.Event(d.o.Pods.Node, corev1.EventTypeWarning, reason.RotatedLogsRemoved,
			"removed the %d oldest compressed logs of containers (%d bytes), because %s is short", freed.Files,
			freed.Bytes, c.Threshold.Signal)
	}
	return freed.Files > 0
}

// logsOnNode reports whether logs lie on the file system of the root directory.
func (d *Disk) logsOnNode() bool {
	var logs, node unix.Stat_t
	return unix.Stat(d.o.LogsDir, &logs) == nil && unix.Stat(d.o.Dir, &node) == nil && logs.Dev == node.Dev
}

// Evict implements eviction.Pods.
func (d *Disk) Evict(v eviction.Victim) {
	d.o.Pods.Evict(v)
	d.account.add(v.Pod.UID, v.Grace, time.Now())
}

// stage returns how far a victim has ended.
func (d *Disk) stage(uid types.UID) stage {
	switch {
	case !d.over(uid):
		return ends
	case len(d.o.Pods.Observed.Observed(uid).ContainersOf()) > 0:
		return over
	}
	return removed
}

// over reports whether nothing of a pod is left on this node but its logs and dead containers.
func (d *Disk) over(uid types.UID) bool {
	m, here := d.o.Pods.Fleet.Member(uid)
	return here && m.State.Stage == worker.Terminated || !here && !d.o.Pods.Roll.Known(uid)
}

// reclaim removes dead containers if the file system has their layers, and then unused images if it has images. It
// reports whether there were any.
func (d *Disk) reclaim(ctx context.Context, s eviction.Signal, parts eviction.Parts) bool {
	cause := string(s) + " is short"
	var dead []string
	var images []garbage.Image
	var err, imageErr error
	if parts.Layers {
		dead, err = d.removeDead(ctx, cause)
	}
	if parts.Images {
		images, imageErr = d.o.Images.Reclaim(ctx, cause)
	}
	if err = errors.Join(err, imageErr); err != nil && ctx.Err() == nil {
		d.o.Pods.Log.Warn("cannot remove all dead containers and unused images, continuing with pods", "err", err)
	}
	return len(dead)+len(images) > 0
}

// removeDead removes dead containers and returns their ids.
func (d *Disk) removeDead(ctx context.Context, cause string) ([]string, error) {
	ended := map[types.UID]bool{}
	for uid := range d.o.Pods.Observed.Snapshot().All() {
		ended[uid] = d.over(uid)
	}
	dead, err := d.o.Containers.RemoveDead(ctx, ended)
	for _, id := range dead {
		size, known := d.sizes[id]
		if !known || size.Bytes > smallLayer.Bytes || size.Inodes > smallLayer.Inodes {
			d.account.leave(time.Now())
		}
		delete(d.sizes, id)
	}
	if len(dead) > 0 {
		d.o.Pods.Events.Event(d.o.Pods.Node, corev1.EventTypeNormal, reason.ContainersRemoved,
			"removed %d dead containers, because %s", len(dead), cause)
	}
	return dead, err
}

// free frees the layers of removed containers, and reports whether it has. It may take several looks. A runtime
// without such a call frees them by itself.
func (d *Disk) free(ctx context.Context) bool {
	if d.o.Layers == nil {
		d.account.later(time.Now())
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, freeLimit)
	defer cancel()
	if err := d.o.Layers.FreeLayers(ctx); err != nil {
		d.o.Pods.Log.Warn("the space of removed containers is not free yet, retrying at the next look", "err", err)
		return false
	}
	d.account.freed(time.Now())
	return true
}

// Candidates implements eviction.Pods.
func (d *Disk) Candidates(ctx context.Context, s eviction.Signal) []eviction.Candidate {
	layers := d.layers(ctx, nil)
	maps.Copy(d.sizes, layers)
	return d.candidates(ctx, s, layers)
}

// measured is Candidates for any goroutine.
func (d *Disk) measured(ctx context.Context, s eviction.Signal) []eviction.Candidate {
	return d.candidates(ctx, s, d.layers(ctx, nil))
}

func (d *Disk) candidates(ctx context.Context, s eviction.Signal,
	layers map[string]diskusage.Usage) []eviction.Candidate {
	return d.o.Pods.candidates(s, func(of *corev1.Pod) (int64, bool) {
		used := d.measure(ctx, of, d.layout.Parts(s), layers)
		if s.Resource() == eviction.Inodes {
			return used.Inodes, true
		}
		return used.Bytes, true
	})
}

// Layers returns the sizes of the writable layers of all pods by container. After an error it returns those that it
// could read. It may be called from any goroutine.
func (d *Disk) Layers(ctx context.Context) (map[string]diskusage.Usage, error) {
	return d.readLayers(ctx, nil)
}

// layers returns the sizes of the writable layers by container, of one pod or of all. It leaves out what it cannot
// read.
func (d *Disk) layers(ctx context.Context, of *corev1.Pod) map[string]diskusage.Usage {
	all, err := d.readLayers(ctx, of)
	if err != nil {
		d.o.Pods.Log.Warn("cannot read the sizes of writable layers, continuing without them", "err", err)
	}
	return all
}

// readLayers reads the sizes of the writable layers by container, of one pod or of all. A runtime that cannot measure
// them now has measured them some time ago.
func (d *Disk) readLayers(ctx context.Context, of *corev1.Pod) (map[string]diskusage.Usage, error) {
	if d.o.Layers != nil {
		return d.measureLayers(ctx, of)
	}
	q := &runtimeapi.ListContainerStatsRequest{}
	if of != nil {
		q.Filter = &runtimeapi.ContainerStatsFilter{LabelSelector: map[string]string{pod.LabelPodUID: string(of.UID)}}
	}
	r, err := d.o.CRI.Runtime.ListContainerStats(ctx, q)
	all := map[string]diskusage.Usage{}
	for _, c := range r.GetStats() {
		layer := c.GetWritableLayer()
		all[c.GetAttributes().GetId()] = diskusage.Usage{Bytes: int64(layer.GetUsedBytes().GetValue()),
			Inodes: int64(layer.GetInodesUsed().GetValue())}
	}
	return all, err
}

func (d *Disk) measureLayers(ctx context.Context, of *corev1.Pod) (map[string]diskusage.Usage, error) {
	all, errs := map[string]diskusage.Usage{}, []error(nil)
	for uid, seen := range d.o.Pods.Observed.Snapshot().All() {
		if of != nil && uid != of.UID {
			continue
		}
		for _, c := range seen.ContainersOf() {
			used, err := d.o.Layers.LayerUsage(ctx, c.ID)
			if errdefs.IsNotFound(err) { // the container was removed meanwhile
				continue
			}
			if all[c.ID] = used; err != nil {
				errs = append(errs, fmt.Errorf("measure the writable layer of container %s: %w", c.Name, err))
			}
		}
	}
	return all, errors.Join(errs...)
}

// measure returns a pod's usage of a file system: its logs, its local volumes and its writable layers.
func (d *Disk) measure(ctx context.Context, of *corev1.Pod, parts eviction.Parts,
	layers map[string]diskusage.Usage) (sum diskusage.Usage) {
	add := func(u diskusage.Usage) { sum.Bytes, sum.Inodes = sum.Bytes+u.Bytes, sum.Inodes+u.Inodes }
	if parts.Layers {
		for _, c := range d.o.Pods.Observed.Observed(of.UID).ContainersOf() {
			add(layers[c.ID])
		}
	}
	if !parts.LogsAndVolumes {
		return sum
	}
	add(d.tree(ctx, d.o.Logs.LogDir(of), diskusage.Measure))
	mounted := d.o.Volumes.Mounted(of.UID)
	for _, v := range of.Spec.Volumes {
		if pod.StoresLocally(v) && mounted[v.Name].Path != "" {
			add(d.tree(ctx, mounted[v.Name].Path, volumeOf(of).measure))
		}
	}
	return sum
}

// tree measures a directory. If the directory is gone, or a pod makes it impossible to measure, the part that was
// measured counts.
func (d *Disk) tree(ctx context.Context, dir string,
	measure func(context.Context, string) (diskusage.Usage, error)) diskusage.Usage {
	used, err := measure(ctx, dir)
	if err != nil {
		d.o.Pods.Log.Debug("cannot measure a directory of a pod", "dir", dir, "err", err)
	}
	return used
}

// Usage implements eviction.Pods: the logs and the writable layer of each container.
func (d *Disk) Usage(ctx context.Context, of *corev1.Pod, s eviction.Signal) (used eviction.Usage) {
	if s.Resource() != corev1.ResourceEphemeralStorage {
		return used
	}
	layers := d.layers(ctx, of)
	for _, c := range d.o.Pods.Observed.Observed(of.UID).ContainersOf() {
		if c.State == pod.StateRunning {
			logs := d.tree(ctx, filepath.Join(d.o.Logs.LogDir(of), c.Name), diskusage.Measure)
			used.Containers = append(used.Containers,
				eviction.ContainerUsage{Name: c.Name, Bytes: logs.Bytes + layers[c.ID].Bytes})
		}
	}
	return used
}
