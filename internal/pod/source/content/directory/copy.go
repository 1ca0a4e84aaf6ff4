package directory

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/source/content"
)

// manifestCopy is the last valid content of a manifest, version 1. It lets an agent that starts while the manifests are
// missing, or faulty, continue with the pods and objects that it knows.
type manifestCopy struct {
	Text []byte           `json:"text"`
	Dir  object.Directory `json:"dir"`
}

// syncDelay is how long changes of copies are collected before they are synced. No pod waits for the disk meanwhile,
// neither to start nor to end.
const syncDelay = time.Second

// copies are the copies on disk, one file for each manifest. A change survives the death of the agent at once, and a
// power cut after run has synced it. nil keeps none.
type copies struct {
	disk    *checkpoint.Dir[manifestCopy]
	log     *slog.Logger
	changed *wake.Set[string] // the manifests whose copies are not synced yet
}

func newCopies(dir string, log *slog.Logger) *copies {
	disk := checkpoint.NewDir[manifestCopy](dir, checkpoint.Format{Version: 1})
	return &copies{disk: disk, log: log, changed: wake.NewSet[string]()}
}

// run syncs copies some time after they change, and once more when ctx ends. It retries what fails. It returns ctx's
// error, or nil if no copies are kept.
func (c *copies) run(ctx context.Context) error {
	if c == nil {
		return nil
	}
	var pace checkpoint.Pace
	for pace.Wait(ctx, c.changed.C(), syncDelay) {
		err := c.sync()
		switch fails, recovered := pace.Record(err); {
		case fails:
			c.log.Warn("cannot sync copies of manifests, a power cut now would lose changes, retrying", "err", err)
		case recovered:
			c.log.Info("copies of manifests are synced again")
		}
	}
	if err := c.sync(); err != nil {
		c.log.Warn("cannot sync copies of manifests before the end, a power cut now would lose changes", "err", err)
	}
	return ctx.Err()
}

// sync makes all changes until its call survive a power cut. Those that it cannot sync wait for the next call.
func (c *copies) sync() error {
	paths := c.changed.Take()
	if len(paths) == 0 {
		return nil
	}
	err := c.disk.Sync(slices.Collect(maps.Keys(paths))...)
	if err != nil {
		c.changed.AddAll(paths)
	}
	return err
}

// save replaces the copy of a manifest. It reports whether it could.
func (c *copies) save(path string, m manifestCopy) bool {
	if c == nil {
		return true
	}
	if err := c.disk.SaveUnsynced(path, m); err != nil {
		c.log.Warn("cannot copy manifest: if it is missing when the agent starts, its pods are unknown", "path", path,
			"err", err)
		return false
	}
	c.changed.Add(path)
	return true
}

// remove removes the copy of a manifest.
func (c *copies) remove(path string) {
	if c == nil {
		return
	}
	if err := c.disk.DeleteUnsynced(path); err != nil {
		c.log.Warn("cannot remove the copy of a removed manifest, retrying when the agent starts", "path", path,
			"err", err)
		return
	}
	c.changed.Add(path)
}

// load returns the copies.
func (c *copies) load() map[string]manifestCopy {
	if c == nil {
		return nil
	}
	all, err := c.disk.LoadAll()
	if err != nil {
		c.log.Warn("cannot read copies of manifests, continuing without them", "err", err)
	}
	return all
}

// recall starts with the copies of an earlier agent. It removes copies of manifests that the path does not name any
// more.
func (d *Directory) recall() {
	for path, c := range d.copies.load() {
		if path != d.at.path && filepath.Dir(path) != d.at.path {
			d.copies.remove(path)
			continue
		}
		w, _ := content.Build(c.Text, path, pod.SourceFile, d.node)
		d.files[path] = &file{sum: sha256.Sum256(c.Text), wanted: w, dir: c.Dir, copied: true}
		d.last = c.Dir
		d.at.single = path == d.at.path
	}
}
