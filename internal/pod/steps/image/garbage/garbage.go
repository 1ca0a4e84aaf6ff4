package garbage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/event"
)

// images has the calls of the image service that this package makes.
type images interface {
	ListImages(context.Context, *runtimeapi.ListImagesRequest, ...grpc.CallOption) (*runtimeapi.ListImagesResponse,
		error)
	RemoveImage(context.Context, *runtimeapi.RemoveImageRequest, ...grpc.CallOption) (*runtimeapi.RemoveImageResponse,
		error)
	ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest, ...grpc.CallOption) (*runtimeapi.ImageFsInfoResponse,
		error)
}

type containers interface {
	ListContainers(context.Context, *runtimeapi.ListContainersRequest,
		...grpc.CallOption) (*runtimeapi.ListContainersResponse, error)
}

type pods interface {
	// Pods returns the pods of the node, whose images are in use.
	Pods() []*corev1.Pod
}

// records has a record of each pulled image.
type records interface {
	// Forget drops the record of an image that is gone.
	Forget(id string) error
}

// Options of a Collector. All but Disk and Period are required.
type Options struct {
	Images     images
	Containers containers
	Pods       pods
	// Sandboxes are the images of sandboxes, which are always in use.
	Sandboxes []string
	// Synced has channels that are closed when Pods has all pods. Nothing is removed before.
	Synced  []<-chan struct{}
	Records records
	// Dir is the directory of images.json.
	Dir        string
	Thresholds Thresholds
	// Disk returns how full the disk is. Default: the file system that the runtime names.
	Disk func(context.Context) (Disk, error)
	// Period is the time between two checks. Default 5 min, the kubelet's.
	Period time.Duration
	Events event.Sink
	// Node is the object of the events.
	Node corev1.ObjectReference
	Now  func() time.Time
	Log  *slog.Logger
}

// Collector removes images. Its methods may be called from any goroutine, after
// Load.
type Collector struct {
	opts    Options
	again   wake.Signal    // wakes Run
	changed wake.Broadcast // when there are other images
	// removed counts removed images.
	removed *prometheus.CounterVec

	mu     sync.Mutex // one removal at a time
	ledger map[string]Entry
	saved  bool // the file is up to date
}

// Entry is the ledger's record of an image.
type Entry struct {
	FirstSeen time.Time `json:"firstSeen"`
	LastUsed  time.Time `json:"lastUsed,omitzero"`
	Imported  bool      `json:"imported,omitempty"`
}

// defaultPeriod is the kubelet's.
const defaultPeriod = 5 * time.Minute

// New returns a Collector that has removed nothing.
func New(o Options) *Collector {
	if o.Period == 0 {
		o.Period = defaultPeriod
	}
	c := &Collector{opts: o, again: wake.New(), removed: newRemoved(), ledger: map[string]Entry{}}
	if c.opts.Disk == nil {
		c.opts.Disk = c.disk
	}
	return c
}

func (c *Collector) file() string { return filepath.Join(c.opts.Dir, "images.json") }

func format() checkpoint.Format { return checkpoint.Format{Version: 1} }

// Load reads the ledger. A damaged file is moved aside and logged. Images imported by hand then count as pulled.
func (c *Collector) Load() error {
	ledger, err := checkpoint.Load[map[string]Entry](c.file(), format())
	switch damaged, ok := errors.AsType[*checkpoint.DamagedError](err); {
	case ok:
		c.opts.Log.Warn("image ledger damaged, images imported by hand are no longer protected", "err", damaged)
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("load the ledger of images: %w", err)
	default:
		c.ledger = ledger
	}
	return nil
}

// Imported marks images as imported by hand. They are then removed only by name.
func (c *Collector) Imported(ids ...string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		e := c.ledger[id]
		if e.FirstSeen.IsZero() {
			e.FirstSeen = c.opts.Now()
		}
		e.Imported = true
		c.ledger[id] = e
	}
	c.changed.Wake()
	return c.save()
}

// Look wakes Run to check the disk, because an image was pulled.
func (c *Collector) Look() {
	c.again.Wake()
	c.changed.Wake()
}

// Changed wakes when images were pulled, imported or removed. If another program has pulled or removed an image in the
// runtime, Changed wakes after the next List or check of the disk.
func (c *Collector) Changed() *wake.Broadcast { return &c.changed }

// save writes the ledger. The caller holds mu.
func (c *Collector) save() error {
	err := checkpoint.Save(c.file(), format(), c.ledger)
	c.saved = err == nil
	return err
}

// List returns the images of the node.
func (c *Collector) List(ctx context.Context) ([]Image, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.list(ctx)
}

// usedStep is by how much the time of last use must change to be worth a write.
const usedStep = time.Minute

// list reads from the runtime which images exist and which are in use, and updates the ledger. The caller holds mu.
func (c *Collector) list(ctx context.Context) ([]Image, error) {
	have, err := c.opts.Images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return nil, err
	}
	used, err := c.used(ctx)
	if err != nil {
		return nil, err
	}
	now, all, changed := c.opts.Now(), make([]Image, 0, len(have.Images)), !c.saved
	seen := map[string]bool{}
	for _, m := range have.Images {
		e, known := c.ledger[m.Id]
		if !known {
			e.FirstSeen, changed = now, true
			c.changed.Wake()
		}
		i := Image{ID: m.Id, Tags: m.RepoTags, Digests: m.RepoDigests, Size: int64(m.Size), Pinned: m.Pinned,
			Used: used.has(m.Id, m.RepoTags, m.RepoDigests)}
		if i.Used {
			changed = changed || now.Sub(e.LastUsed) >= usedStep
			e.LastUsed = now
		}
		i.Imported, i.FirstSeen, i.LastUsed = e.Imported, e.FirstSeen, e.LastUsed
		c.ledger[m.Id], seen[m.Id] = e, true
		all = append(all, i)
	}
	for id := range c.ledger {
		if !seen[id] {
			c.gone(id)
			changed = true
		}
	}
	if changed {
		if err := c.save(); err != nil {
			c.opts.Log.Warn("cannot write the image ledger, retrying at the next check", "err", err)
		}
	}
	return all, nil
}

// gone removes an image from the ledger. The caller holds mu.
func (c *Collector) gone(id string) {
	delete(c.ledger, id)
	c.changed.Wake()
	if err := c.opts.Records.Forget(id); err != nil {
		c.opts.Log.Warn("cannot delete the pull record of a removed image", "image", id, "err", err)
	}
}

// uses has the ids and full names of images in use.
type uses map[string]bool

func (u uses) has(id string, names ...[]string) bool {
	return u[id] || slices.ContainsFunc(slices.Concat(names...), func(name string) bool { return u[name] })
}

func (c *Collector) used(ctx context.Context) (uses, error) {
	list, err := c.opts.Containers.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	all := uses{}
	for _, one := range list.Containers {
		for _, name := range []string{one.ImageId, one.ImageRef, one.GetImage().GetImage()} {
			if name != "" {
				all[name], all[FullName(name)] = true, true
			}
		}
	}
	for _, name := range c.wanted() {
		all[name], all[FullName(name)] = true, true
	}
	return all, nil
}

// wanted returns the images of sandboxes and those that the pods of the node name, in their spelling.
func (c *Collector) wanted() []string {
	names := slices.Clone(c.opts.Sandboxes)
	for _, p := range c.opts.Pods.Pods() {
		for _, one := range pod.Containers(p) {
			names = append(names, one.Image)
		}
		for _, v := range p.Spec.Volumes {
			if v.Image != nil {
				names = append(names, v.Image.Reference)
			}
		}
	}
	return names
}
