package directory

import (
	"crypto/sha256"
	"log/slog"
	"path/filepath"

	"github.com/berth-run/berth/internal/base/checkpoint"
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

// copies are the copies on disk, one file for each manifest. nil keeps none.
type copies struct {
	disk *checkpoint.Dir[manifestCopy]
	log  *slog.Logger
}

func newCopies(dir string, log *slog.Logger) *copies {
	return &copies{checkpoint.NewDir[manifestCopy](dir, checkpoint.Format{Version: 1}), log}
}

// save replaces the copy of a manifest. It reports whether it could.
func (c *copies) save(path string, m manifestCopy) bool {
	if c == nil {
		return true
	}
	err := c.disk.Save(path, m)
	if err != nil {
		c.log.Warn("cannot copy manifest: if it is missing when the agent starts, its pods are unknown", "path", path,
			"err", err)
	}
	return err == nil
}

// remove removes the copy of a manifest.
func (c *copies) remove(path string) {
	if c == nil {
		return
	}
	if err := c.disk.Delete(path); err != nil {
		c.log.Warn("cannot remove the copy of a removed manifest, retrying when the agent starts", "path", path,
			"err", err)
	}
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
