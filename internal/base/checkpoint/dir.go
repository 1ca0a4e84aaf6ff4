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
	"sync/atomic"
)

const (
	suffix    = ".json"
	tmpSuffix = ".tmp"
	// maxStem leaves room in NAME_MAX (255) for the suffixes that are added to it.
	maxStem = 160
)

// Dir is a collection with one file for each key. So a change writes one small file, and damage loses one key. It has
// one user at a time; only Sync may be called beside its unsynced calls.
type Dir[T any] struct {
	path   string
	format Format
	// doubtful is set while the disk may not keep a removal, because it has refused to sync one.
	doubtful atomic.Bool
}

// NewDir names a collection. The first Save makes its directory.
func NewDir[T any](path string, f Format) *Dir[T] { return &Dir[T]{path: path, format: f} }

// keyed has the key in the file's content, because the file's name may be shortened.
type keyed[T any] struct {
	Key   string `json:"key"`
	Value T      `json:"value"`
}

// Check implements Checker.
func (k keyed[T]) Check() error { return check(k.Value) }

// Save sets the value of key. If it fails, the old value stays.
func (d *Dir[T]) Save(key string, v T) error { return d.save(key, v, true) }

// SaveUnsynced is Save for a value that may be lost in a power cut, but in nothing else. It avoids a sync, which delays
// every other writer of the file system. A file that the power cut has damaged is moved aside like any other.
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

// Delete removes key. A key that does not exist is no error.
func (d *Dir[T]) Delete(key string) error { return d.delete(key, true) }

// DeleteUnsynced is Delete for a key that may be back after a power cut.
func (d *Dir[T]) DeleteUnsynced(key string) error { return d.delete(key, false) }

func (d *Dir[T]) delete(key string, synced bool) error {
	err := remove(d.file(key), false)
	switch {
	case !synced:
	case err == nil:
		err = d.syncEntries()
	default:
		d.doubtful.Store(true)
	}
	if err != nil {
		return fmt.Errorf("delete %q: %w", key, err)
	}
	return nil
}

// Sync makes unsynced saves and removals of keys survive a power cut. It syncs the directory once for all of them.
func (d *Dir[T]) Sync(keys ...string) error {
	var errs []error
	for _, key := range keys {
		if err := ignoreAbsent(Sync(d.file(key))); err != nil {
			errs = append(errs, fmt.Errorf("sync %q: %w", key, err))
		}
	}
	if err := d.syncEntries(); err != nil {
		errs = append(errs, fmt.Errorf("sync state directory: %w", err))
	}
	return errors.Join(errs...)
}

// syncEntries makes renames and removals in the directory survive a power cut.
func (d *Dir[T]) syncEntries() error {
	err := ignoreAbsent(Sync(d.path))
	if err == nil && d.doubtful.Load() {
		err = ignoreAbsent(prove(d.path))
	}
	d.doubtful.Store(err != nil)
	return err
}

// LoadAll returns every key that it can read, also if there is an error. The error joins a *DamagedError for each file
// that was moved aside. It removes temporary files of interrupted saves.
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

// file is the path for key: readable if possible, never longer than a file name may be, never hidden and never outside
// the directory.
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

// makeDir makes a directory that survives a power cut.
func makeDir(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	return Sync(filepath.Dir(path))
}
