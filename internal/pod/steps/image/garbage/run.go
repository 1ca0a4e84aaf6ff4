package garbage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/cri"
)

// Run checks the disk periodically until ctx ends.
func (c *Collector) Run(ctx context.Context) error {
	for _, synced := range c.opts.Synced {
		select {
		case <-synced:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		case <-c.again.C():
		}
		err := c.Collect(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			failures = 0
		default:
			failures++
			c.opts.Log.Warn("cannot remove unused images, retrying at the next check", "err", err)
			if failures > 1 { // at the first check the runtime may not have measured its disk yet
				c.opts.Events.Event(c.opts.Node, corev1.EventTypeWarning, reason.ImageGCFailed, "%v", err)
			}
		}
		timer.Reset(c.opts.Period)
	}
}

// Collect checks once and removes the images that are due.
func (c *Collector) Collect(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, err := c.list(ctx)
	if err != nil {
		return err
	}
	old := expired(all, c.opts.Thresholds, c.opts.Now())
	_, err = c.remove(ctx, old, removal{reason: forAge,
		cause: fmt.Sprintf("they were unused for more than %v (imageMaximumGCAge)", c.opts.Thresholds.MaxAge)})
	if c.opts.Thresholds.High >= 100 {
		return err
	}
	return errors.Join(err, c.makeRoom(ctx))
}

// makeRoom frees disk space if the disk is too full. The caller holds mu.
func (c *Collector) makeRoom(ctx context.Context) error {
	disk, err := c.opts.Disk(ctx)
	if err != nil {
		return fmt.Errorf("measure the disk of images: %w", err)
	}
	if disk.Capacity <= 0 {
		err := reason.New(reason.InvalidDiskCapacity, "invalid capacity 0 on image filesystem")
		c.opts.Events.Event(c.opts.Node, corev1.EventTypeWarning, reason.InvalidDiskCapacity, "%s", err.Message())
		return err
	}
	want := excess(c.opts.Thresholds, disk)
	if want == 0 {
		return nil
	}
	c.opts.Log.Info("disk of images is above its threshold, removing unused images", "used", disk.Percent(),
		"threshold",
		c.opts.Thresholds.High, "to free", want)
	all, err := c.list(ctx)
	if err != nil {
		return err
	}
	gone, err := c.remove(ctx, candidates(all, c.opts.Thresholds, c.opts.Now()), removal{reason: forSpace, enough: want,
		cause: fmt.Sprintf("the file system of images is %d%% full", disk.Percent())})
	if freed := size(gone); freed < want {
		failure := reason.New(reason.FreeDiskSpaceFailed,
			"Insufficient free disk space on the node's image filesystem (%d%% of %d bytes used). "+
				"Failed to free sufficient space by deleting unused images (freed %d bytes of %d). "+
				"Consider resizing the disk or deleting unused files.", disk.Percent(), disk.Capacity, freed, want)
		c.opts.Events.Event(c.opts.Node, corev1.EventTypeWarning, reason.FreeDiskSpaceFailed, "%s", failure.Message())
		return errors.Join(failure, err)
	}
	return err
}

// Reclaim removes all unused images that may be removed to free disk space, and returns them. cause completes the
// sentence "removed unused images, because ...".
func (c *Collector) Reclaim(ctx context.Context, cause string) ([]Image, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, err := c.list(ctx)
	if err != nil {
		return nil, err
	}
	gone, err := c.remove(ctx, candidates(all, c.opts.Thresholds, c.opts.Now()),
		removal{reason: forSpace, cause: cause})
	return gone, errors.Join(err, c.save())
}

// removal says why images are removed.
type removal struct {
	// reason is for the metric, cause for the event.
	reason, cause string
	// enough is how many bytes are enough to free. 0 removes all images.
	enough int64
}

// remove removes images in this order, and records an event that names them. The caller holds mu.
func (c *Collector) remove(ctx context.Context, all []Image, r removal) (gone []Image, err error) {
	for _, i := range all {
		if used, e := c.usedSince(ctx, i); used || e != nil {
			err = errors.Join(err, e)
			continue
		}
		if e := c.removeOne(ctx, i); e != nil {
			err = errors.Join(err, e)
			continue
		}
		c.removed.WithLabelValues(r.reason).Inc()
		if gone = append(gone, i); r.enough > 0 && size(gone) >= r.enough {
			break
		}
	}
	if len(gone) > 0 {
		c.opts.Events.Event(c.opts.Node, corev1.EventTypeNormal, reason.ImagesRemoved, "%s",
			removedMessage(gone, r.cause))
	}
	return gone, err
}

// size returns how many bytes images have together.
func size(all []Image) (bytes int64) {
	for _, i := range all {
		bytes += i.Size
	}
	return bytes
}

// usedSince checks again whether an image is in use: each removal takes time, and pods may have come meanwhile.
func (c *Collector) usedSince(ctx context.Context, i Image) (bool, error) {
	now, err := c.used(ctx)
	return now.has(i.ID, i.Tags, i.Digests), err
}

func (c *Collector) removeOne(ctx context.Context, i Image) error {
	_, err := c.opts.Images.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: i.ID}})
	if err != nil {
		return fmt.Errorf("remove image %s: %w", i, err)
	}
	c.opts.Log.Info("image removed", "image", i.String(), "size", i.Size)
	c.gone(i.ID)
	c.saved = false
	return nil
}

// String returns a name to show.
func (i Image) String() string {
	for _, names := range [][]string{i.Tags, i.Digests} {
		if len(names) > 0 {
			return names[0]
		}
	}
	return i.ID
}

// Errors of Remove.
var (
	ErrNoImage   = errors.New("no such image")
	ErrAmbiguous = errors.New("several images have an id that begins like this")
	ErrInUse     = errors.New("image is in use")
)

// Remove removes the image with that name, and all its other names with it. An image in use stays unless force is set.
// Its containers then keep running, but cannot be started again without a pull.
func (c *Collector) Remove(ctx context.Context, name string, force bool) (Image, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, err := c.list(ctx)
	if err != nil {
		return Image{}, err
	}
	found, err := one(all, name)
	if err == nil && found.Used && !force {
		err = ErrInUse
	}
	if err != nil {
		return Image{}, fmt.Errorf("remove image %q: %w", name, err)
	}
	err = c.removeOne(ctx, found)
	return found, errors.Join(err, c.save())
}

// Find returns the image with that name.
func (c *Collector) Find(ctx context.Context, name string) (Image, error) {
	all, err := c.List(ctx)
	if err != nil {
		return Image{}, err
	}
	found, err := one(all, name)
	if err != nil {
		return Image{}, fmt.Errorf("find image %q: %w", name, err)
	}
	return found, nil
}

func one(all []Image, name string) (Image, error) {
	switch found := find(all, name); len(found) {
	case 0:
		return Image{}, ErrNoImage
	case 1:
		return found[0], nil
	}
	return Image{}, ErrAmbiguous
}

// Prune removes all unused images, including images imported by hand if imported is set. It returns the removed images.
func (c *Collector) Prune(ctx context.Context, imported bool) ([]Image, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, err := c.list(ctx)
	if err != nil {
		return nil, err
	}
	var gone []Image
	for _, i := range unused(all, imported) {
		if used, e := c.usedSince(ctx, i); used || e != nil {
			err = errors.Join(err, e)
			continue
		}
		if e := c.removeOne(ctx, i); e != nil {
			err = errors.Join(err, e)
			continue
		}
		gone = append(gone, i)
	}
	return gone, errors.Join(err, c.save())
}

// Usage is the disk usage of images.
type Usage struct {
	Images, Used      int
	Size, Reclaimable int64 // in bytes: of all images, and of those that Prune removes
	Disk              Disk
}

// Usage adds up all images.
func (c *Collector) Usage(ctx context.Context) (Usage, error) {
	all, err := c.List(ctx)
	if err != nil {
		return Usage{}, err
	}
	u := Usage{Images: len(all)}
	for _, i := range all {
		u.Size += i.Size
		if i.Used {
			u.Used++
		}
	}
	for _, i := range unused(all, false) {
		u.Reclaimable += i.Size
	}
	u.Disk, err = c.opts.Disk(ctx)
	return u, err
}

// disk measures the file system that the runtime names for its images.
func (c *Collector) disk(ctx context.Context) (Disk, error) {
	images, _, err := cri.FileSystems(ctx, c.opts.Images)
	if err != nil {
		return Disk{}, err
	}
	path := images.GetFsId().GetMountpoint()
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return Disk{}, fmt.Errorf("measure file system %s: %w", path, err)
	}
	return Disk{Capacity: int64(s.Blocks) * s.Bsize, Available: int64(s.Bavail) * s.Bsize}, nil
}
