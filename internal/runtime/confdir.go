package runtime

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

	"github.com/fsnotify/fsnotify"
)

// confRetry is when the CNI configuration is looked at again after that failed.
const confRetry = 5 * time.Second

// confFile is an entry of a directory of CNI configuration: a file with its text, or
// a link to a directory, which has more plugins of the network that it is named after.
type confFile struct {
	text   []byte
	linkTo string
}

// readConfDir is what containerd would load of a directory, by name; nothing without
// a file. One that is empty is about to be written.
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

// place makes a directory have these entries and no other configuration. containerd
// looks at it after each step: what is to stay comes before anything goes, so that
// it finds a network at any time, and plugins before the file that wants them.
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
		if err := replace(path, text); err != nil {
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

// follow keeps containerd's directory as the machine's configuration says, until ctx
// ends: it may appear when the node has joined a cluster, and go with the plugin.
func (n *podNetwork) follow(ctx context.Context) error {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch CNI configuration: %w", err)
	}
	defer func() { _ = notify.Close() }()
	told := ""
	for {
		var again <-chan time.Time
		failed := ""
		if err := errors.Join(watch(notify, n.config.CNIConfDir), n.sync()); err != nil {
			failed, again = err.Error(), time.After(confRetry)
		}
		if failed != told && failed != "" {
			n.config.Log.Error("Cannot follow the CNI configuration: pods that start may have another network, or none",
				"err", failed, "again in", confRetry)
		}
		told = failed
		if !n.await(ctx, notify, again) {
			return nil
		}
	}
}

// await returns when there may be something new, and false when ctx has ended.
func (n *podNetwork) await(ctx context.Context, notify *fsnotify.Watcher, again <-chan time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-again:
			return true
		case err := <-notify.Errors: // events were lost
			n.config.Log.Debug("watch CNI configuration", "err", err)
			return true
		case event := <-notify.Events:
			if concerns(event.Name, n.config.CNIConfDir) {
				return true
			}
		}
	}
}

// watch asks for news of a directory and of the one that it is in, or else of the
// nearest that is there.
func watch(notify *fsnotify.Watcher, dir string) error {
	for {
		at := nearest(dir)
		err := notify.Add(at)
		if at == dir && err == nil {
			err = notify.Add(filepath.Dir(dir))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("watch CNI configuration: %w", err)
		}
		if err == nil && nearest(dir) == at {
			return nil
		}
	}
}

// nearest is a directory, or the deepest one above it that is there.
func nearest(dir string) string {
	for dir != "/" {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}
