package logfile

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Depth is how many parts at the end of a log's path a container with a hostPath there can replace by links: the pod's
// directory, the container's directory and the file. The parts before them are trusted.
const Depth = 3

// Root opens the directory of all logs, and returns the path of a log below it. What is opened, made or removed through
// the root stays below the directory, whatever links a container puts there.
func Root(log string) (root *os.Root, rel string, err error) {
	dir, rel := split(log, Depth)
	root, err = os.OpenRoot(dir)
	return root, rel, err
}

// MkdirAll makes the directory of a pod's logs (depth Depth-2) or of a container's logs (depth Depth-1), and the
// directories above it. Their mode is 0755. It makes nothing outside of the directory of all logs.
func MkdirAll(dir string, depth int) error {
	const mode = 0o755
	all, rel := split(dir, depth)
	if err := os.MkdirAll(all, mode); err != nil {
		return err
	}
	root, err := os.OpenRoot(all)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing was written through it
	return root.MkdirAll(rel, mode)
}

// Rename gives a file below root another name in its directory. It fails with fs.ErrExist if a file has that name.
func Rename(root *os.Root, from, name string) error {
	dir, err := root.Open(filepath.Dir(from))
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }() // it was opened for reading only
	at := int(dir.Fd())
	if err := unix.Renameat2(at, filepath.Base(from), at, name, unix.RENAME_NOREPLACE); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: name, Err: err}
	}
	return nil
}

// split cuts the last depth parts off a path.
func split(path string, depth int) (dir, rel string) {
	dir = filepath.Clean(path)
	for range depth {
		rel = filepath.Join(filepath.Base(dir), rel)
		dir = filepath.Dir(dir)
	}
	return dir, rel
}
