package recall

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/config"
)

// File is the file in a root directory that holds the flags of the last agent.
const File = "agent.json"

// SystemFile is the configuration that "berth init" writes, and that the systemd unit names.
const SystemFile = "/etc/berth/config.yaml"

func format() checkpoint.Format { return checkpoint.Format{Version: 1} }

// Save keeps the flags of an agent in its root directory, so that commands find the agent's configuration while it
// does not run.
func Save(root string, f config.Flags) error {
	for _, path := range append(f.Paths(), &f.ConfigFile, &f.ConfigDir) {
		if *path == "" {
			continue
		}
		var err error
		if *path, err = filepath.Abs(*path); err != nil {
			return fmt.Errorf("keep the agent's flags: %w", err)
		}
	}
	if err := checkpoint.Save(filepath.Join(root, File), format(), f); err != nil {
		return fmt.Errorf("keep the agent's flags: %w", err)
	}
	return nil
}

// Load returns the flags of the last agent on a root directory. Without one it returns flags for that directory with
// the file system if there is one and the directory is the default one.
func Load(root, system string) (config.Flags, error) {
	f, err := checkpoint.Load[config.Flags](filepath.Join(root, File), format())
	switch {
	case err == nil:
		f.RootDir = root
		return f, nil
	case !errors.Is(err, fs.ErrNotExist):
		return f, fmt.Errorf("read the flags of the last agent: %w", err)
	}
	f = config.Flags{RootDir: root}
	if _, err := os.Stat(system); err == nil && root == config.DefaultRootDir {
		f.ConfigFile = system
	}
	return f, nil
}
