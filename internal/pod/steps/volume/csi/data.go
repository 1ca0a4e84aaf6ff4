package csi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// dataFile is the kubelet's file beside a mount.
const dataFile = "vol_data.json"

// data is its content, in the kubelet's words.
type data struct {
	SpecName   string `json:"specVolID,omitempty"`
	Handle     string `json:"volumeHandle"`
	Driver     string `json:"driverName"`
	Node       string `json:"nodeName,omitempty"`
	Mode       string `json:"volumeLifecycleMode,omitempty"`
	Attachment string `json:"attachmentID,omitempty"`
	Label      string `json:"seLinuxMountContext,omitempty"`
}

// save writes it beside a mount. It is on disk before the driver is asked.
func (d data) save(dir string) error {
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	next := filepath.Join(dir, "."+dataFile)
	if err := os.WriteFile(next, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(dir, dataFile))
}

// load reads it. ok is false where there is none: the driver was asked for nothing.
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
		err = errors.New("it names no driver or volume")
	}
	if err != nil {
		return d, false, fmt.Errorf("read what is mounted from %s: %w", name, err)
	}
	return d, true, nil
}

// remove takes names below dir away, then dir. What is not empty is an error: it
// may be somebody's data.
func remove(dir string, names ...string) error {
	paths := make([]string, 0, len(names)+1)
	for _, name := range names {
		paths = append(paths, filepath.Join(dir, name))
	}
	for _, path := range append(paths, dir) {
		if err := ignoreMissing(os.Remove(path)); err != nil {
			return err
		}
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
