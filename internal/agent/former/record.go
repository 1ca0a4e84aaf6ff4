package former

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/berth-run/berth/internal/agent/engine/endpoint"
	"github.com/berth-run/berth/internal/base/checkpoint"
)

// path returns the file in a root directory with the endpoints of the runtimes that may have pods of that directory.
func path(root string) string { return filepath.Join(root, "runtimes.json") }

func format() checkpoint.Format { return checkpoint.Format{Version: 1} }

// endpoints is the content of the file.
type endpoints []string

// Check implements checkpoint.Checker. The agent would choose a runtime for an empty endpoint, and end its pods.
func (e endpoints) Check() error {
	if slices.Contains(e, "") {
		return errors.New("an endpoint is empty")
	}
	return nil
}

// load returns the endpoints of the runtimes that may have pods of a root directory. Agents of earlier versions wrote
// no file: then the directories of the embedded runtime say whether this one has some. After an error the list holds
// too.
func load(root string) ([]string, error) {
	all, err := checkpoint.Load[endpoints](path(root), format())
	if err == nil {
		return all, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	has, failed := endpoint.EmbeddedPods(root)
	if has {
		all = append(all, endpoint.Embedded)
	}
	if err = errors.Join(err, failed); err != nil {
		return all, fmt.Errorf("read the runtimes of earlier agents: %w", err)
	}
	return all, nil
}

func save(root string, all []string) error {
	if err := checkpoint.Save(path(root), format(), all); err != nil {
		return fmt.Errorf("record the runtimes with pods of this agent: %w", err)
	}
	return nil
}

// others returns the endpoints apart from the one in use.
func others(all []string, current string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(e string) bool { return e == current })
}
