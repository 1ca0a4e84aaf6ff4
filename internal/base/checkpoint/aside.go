package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// SetAside returns the files that LoadAll has moved aside, now or in an earlier process, and whose keys have no value
// since. They are by key; the key is a file's name if it cannot be read from that. A user of a collection whose loss
// matters reports them after each start, because LoadAll reports a file only when it moves the file.
func (d *Dir[T]) SetAside() (map[string]*DamagedError, error) {
	entries, err := os.ReadDir(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list state directory: %w", err)
	}
	all := map[string]*DamagedError{}
	for _, e := range entries {
		stem, ok := asideOf(e.Name())
		if !ok {
			continue
		}
		if _, err := os.Lstat(filepath.Join(d.path, stem+suffix)); err == nil {
			continue // saved again
		}
		key, err := url.PathUnescape(stem)
		if err != nil || d.file(key) != filepath.Join(d.path, stem+suffix) {
			key = e.Name() // a long key is not in the name
		}
		all[key] = &DamagedError{Path: filepath.Join(d.path, stem+suffix), Moved: filepath.Join(d.path, e.Name()),
			Err: d.fault(e.Name())}
	}
	return all, nil
}

// fault returns why a file was moved aside.
func (d *Dir[T]) fault(name string) error {
	content, err := os.ReadFile(filepath.Join(d.path, name))
	if err != nil {
		return err
	}
	data, err := d.format.open(content)
	if err != nil {
		return err
	}
	var v keyed[T]
	if err := json.Unmarshal(data, &v); err != nil {
		return fmt.Errorf("has data of another shape: %w", err)
	}
	return errors.New("could not be used when it was loaded")
}

// Discard removes the files of a key that were moved aside.
func (d *Dir[T]) Discard(key string) error {
	entries, err := os.ReadDir(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("discard %q: %w", key, err)
	}
	for _, e := range entries {
		if stem, ok := asideOf(e.Name()); ok && filepath.Join(d.path, stem+suffix) == d.file(key) {
			if err := remove(filepath.Join(d.path, e.Name()), true); err != nil {
				return fmt.Errorf("discard %q: %w", key, err)
			}
		}
	}
	return nil
}

// asideOf returns the stem of a file that was moved aside, as moveAside names it.
func asideOf(name string) (stem string, ok bool) {
	for _, mark := range []string{suffix + ".corrupt-", suffix + ".version-"} {
		if stem, _, found := strings.Cut(name, mark); found {
			return stem, true
		}
	}
	return "", false
}
