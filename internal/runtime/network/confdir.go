package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/base/dirwatch"
)

// confRetry is the time until the next attempt if the CNI configuration cannot be read or written. It is also the time
// between two reads if the kernel does not report its changes.
const confRetry = 5 * time.Second

// confFile is an entry of a directory of CNI configuration: a file with its text, or a link to a directory. Such a
// directory holds more plugins for the network that it is named after.
type confFile struct {
	text   []byte
	linkTo string
}

// readConfDir returns the entries of a directory that containerd would load, by name. It skips empty files, since a
// program is about to write them. Without any file with text it returns nil.
func readConfDir(dir string) (map[string]confFile, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read CNI configuration: %w", err)
	}
	files, links := map[string]confFile{}, map[string]confFile{}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		switch {
		case entry.IsDir():
			links[entry.Name()] = confFile{linkTo: path}
		case isConf(entry.Name()):
			text, err := os.ReadFile(path)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("read CNI configuration: %w", err)
			}
			if len(text) > 0 {
				files[entry.Name()] = confFile{text: text}
			}
		}
	}
	if len(files) == 0 {
		return nil, nil
	}
	maps.Copy(files, links)
	return files, nil
}

// place makes want the whole content of dir. containerd reloads the directory after each step, so the order matters:
// links to plugins come before the files that need them, and stale entries are removed last. containerd thus finds a
// network at any time.
func place(dir string, want map[string]confFile) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("write CNI configuration: %w", err)
	}
	for name, file := range want {
		if file.linkTo != "" {
			if err := placeLink(filepath.Join(dir, name), file.linkTo); err != nil {
				return fmt.Errorf("write CNI configuration: %w", err)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		path, text := filepath.Join(dir, name), want[name].text
		if now, err := os.ReadFile(path); text == nil || err == nil && bytes.Equal(now, text) {
			continue
		}
		if err := checkpoint.ReplaceUnsynced(path, text); err != nil {
			return fmt.Errorf("write CNI configuration: %w", err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("write CNI configuration: %w", err)
	}
	for _, entry := range entries {
		if _, ok := want[entry.Name()]; !ok {
			if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil {
				return fmt.Errorf("write CNI configuration: %w", err)
			}
		}
	}
	return nil
}

func placeLink(path, to string) error {
	if now, err := os.Readlink(path); err == nil && now == to {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Symlink(to, path)
}

// Follow updates containerd's directory after every change of the machine's CNI configuration, until ctx ends. A
// network plugin of a cluster writes that configuration when it is installed and removes it when it is uninstalled.
func (n *Network) Follow(ctx context.Context) error {
	dirs := dirwatch.Start(confRetry, n.config.Log)
	defer dirs.Close()
	reported := ""
	for {
		var again <-chan time.Time
		failed := ""
		if err := errors.Join(watch(dirs, n.config.CNIConfDir), n.sync(ctx)); err != nil {
			failed, again = err.Error(), time.After(confRetry)
		}
		if failed != reported && failed != "" && ctx.Err() == nil {
			n.config.Log.Error(
				"cannot follow the CNI configuration, retrying: new pods may get the previous network or none",
				"err", failed, "delay", confRetry)
		}
		reported = failed
		if !await(ctx, dirs, again, n.config.CNIConfDir) {
			return nil
		}
	}
}

// await waits until the configuration in dir may have changed or again fires. It returns false when ctx has ended.
func await(ctx context.Context, dirs *dirwatch.Watcher, again <-chan time.Time, dir string) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-again:
			return true
		case name := <-dirs.Changes():
			if name == dirwatch.Anything || concerns(name, dir) {
				return true
			}
		}
	}
}

// watch watches dir and its parent for changes. If dir does not exist, it watches the nearest existing directory above
// it.
func watch(dirs *dirwatch.Watcher, dir string) error {
	for {
		at := nearest(dir)
		err := dirs.Add(at)
		if at == dir && err == nil {
			err = dirs.Add(filepath.Dir(dir))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("watch CNI configuration: %w", err)
		}
		if err == nil && nearest(dir) == at {
			return nil
		}
	}
}

// nearest returns dir, or the nearest directory above it that exists.
func nearest(dir string) string {
	for dir != "/" {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}
