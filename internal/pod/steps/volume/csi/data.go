package csi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/base/safepath"
)

// dataFile is the name of the file that the kubelet writes beside a mount.
const dataFile = "vol_data.json"

// data is the content of dataFile. Its field names in JSON are the kubelet's.
type data struct {
	SpecName   string `json:"specVolID,omitempty"`
	Handle     string `json:"volumeHandle"`
	Driver     string `json:"driverName"`
	Node       string `json:"nodeName,omitempty"`
	Mode       string `json:"volumeLifecycleMode,omitempty"`
	Attachment string `json:"attachmentID,omitempty"`
	Label      string `json:"seLinuxMountContext,omitempty"`
}

// save writes the file. It is on disk, also after a power cut, before the driver is called, so that Unpublish knows
// that there is something to undo.
func (d data) save(dir string) error {
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return checkpoint.Replace(filepath.Join(dir, dataFile), append(text, '\n'))
}

// load reads the file. ok is false if there is none: then the driver was never called.
func load(dir string) (d data, ok bool, err error) {
	name := filepath.Join(dir, dataFile)
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return d, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err == nil && (d.Driver == "" || d.Handle == "") {
		err = errors.New("the file names no driver or volume")
	}
	if err != nil {
		return d, false, fmt.Errorf("read mounted volume from %s: %w", name, err)
	}
	return d, true, nil
}

// remove deletes the named files and empty directories in dir, then dir. A directory with content is an error: it may
// be somebody's data.
func remove(dir string, names ...string) error {
	for _, name := range names {
		if err := checkpoint.Remove(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return safepath.IgnoreMissing(os.Remove(dir))
}
