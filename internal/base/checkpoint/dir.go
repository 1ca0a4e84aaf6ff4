package checkpoint

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

const (
	suffix    = ".json"
	tmpSuffix = ".tmp"
	// maxStem leaves room in NAME_MAX (255) for the suffixes that are added to it.
	maxStem = 160
)

// Dir is a collection with one file for each key, so that a change costs one
// small file and damage costs one key. It has one user at a time.
type Dir[T any] struct {
	path   string
	format Format
}

// NewDir names a collection; the directory is made by the first Save.
func NewDir[T any](path string, f Format) *Dir[T] { return &Dir[T]{path: path, format: f} }

// keyed carries the key inside the file: the file's name may be shortened.
type keyed[T any] struct {
	Key   string `json:"key"`
	Value T      `json:"value"`
}

// Save makes v the value of key. When it fails the old value stays.
func (d *Dir[T]) Save(key string, v T) error { return d.save(key, v, true) }

// SaveUnsynced is Save for what may be lost in a power cut, and only in that: a
// sync holds up every other writer of the file system. A file that the cut has
// left damaged is moved aside as any other.
func (d *Dir[T]) SaveUnsynced(key string, v T) error { return d.save(key, v, false) }

func (d *Dir[T]) save(key string, v T, synced bool) error {
	if err := makeDir(d.path); err != nil {
		return fmt.Errorf("save %q: %w", key, err)
	}
	path := d.file(key)
	data, err := json.Marshal(keyed[T]{key, v})
	if err != nil {
		return fmt.Errorf("encode state file %s: %w", path, err)
	}
	return replace(path, seal(d.format.Version, data), synced)
}

// Delete removes key; one that is not there is fine.
func (d *Dir[T]) Delete(key string) error { return d.delete(key, true) }

// DeleteUnsynced is Delete for what may be back after a power cut.
func (d *Dir[T]) DeleteUnsynced(key string) error { return d.delete(key, false) }

func (d *Dir[T]) delete(key string, synced bool) error {
	if err := remove(d.file(key), synced); err != nil {
		return fmt.Errorf("delete %q: %w", key, err)
	}
	return nil
}

// LoadAll returns every key. The map holds what could be read also when there
// is an error, which joins a *DamagedError for each file that was moved aside.
// Leftovers of saves that were cut short are removed.
func (d *Dir[T]) LoadAll() (map[string]T, error) {
	all := map[string]T{}
	entries, err := os.ReadDir(d.path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return all, nil
		}
		return all, fmt.Errorf("load state directory: %w", err)
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(d.path, e.Name())
		switch {
		case strings.HasSuffix(e.Name(), suffix+tmpSuffix):
			errs = append(errs, os.Remove(path))
		case strings.HasSuffix(e.Name(), suffix):
			k, err := Load[keyed[T]](path, d.format)
			if err == nil && d.file(k.Key) != path {
				err = moveAside(path, fmt.Errorf("holds %q, which belongs in %s", k.Key, filepath.Base(d.file(k.Key))))
			}
			if err != nil {
				errs = append(errs, err)
				continue
			}
			all[k.Key] = k.Value
		}
	}
	return all, errors.Join(errs...)
}

// file is where key is kept: readable where possible, never longer than a file
// name may be, never hidden or outside of the directory.
func (d *Dir[T]) file(key string) string {
	stem := url.PathEscape(key)
	if strings.HasPrefix(stem, ".") {
		stem = "%2E" + stem[1:]
	}
	if len(stem) > maxStem || stem == "" {
		stem = fmt.Sprintf("%s-%x", stem[:min(len(stem), maxStem-65)], sha256.Sum256([]byte(key)))
	}
	return filepath.Join(d.path, stem+suffix)
}

// makeDir makes a directory whose own entry survives a power cut too.
func makeDir(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}
