package unixsocket

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/safepath"
)

// parent contains the directories of all roots. It is on a tmpfs.
const parent = "/run/berth"

// rootFile is the file in a root's directory of sockets that contains the root's path.
const rootFile = "root"

// Dir returns the directory for the sockets of a root directory. All paths that lead to a root through
// links have the same directory. A shim's socket there (/s/ and 64 digits) has a path no longer than MaxPath.
func Dir(root string) string {
	sum := sha256.Sum256([]byte(resolve(root)))
	return filepath.Join(parent, hex.EncodeToString(sum[:14]))
}

// resolve follows the links on a path. The end of the path may not exist, and stays as it is.
func resolve(path string) string {
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		return resolved
	}
	up := filepath.Dir(path)
	if up == path {
		return path
	}
	return filepath.Join(resolve(up), filepath.Base(path))
}

// MakeDir makes the directory for the sockets of a root directory. Only the user of this process can enter it. It fails
// if the directory belongs to another root.
func MakeDir(root string) (dir string, err error) {
	dir = Dir(root)
	if err := os.MkdirAll(parent, 0o711); err != nil {
		return "", fmt.Errorf("make directory: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make directory: %w", err)
	}
	if err := claim(dir, resolve(root)); err != nil {
		return "", fmt.Errorf("use %s for sockets: %w", dir, err)
	}
	return dir, nil
}

// claim checks a directory of sockets, and writes the path of its root into it.
func claim(dir, root string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return err
	}
	if st.Mode != unix.S_IFDIR|0o700 || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("it is not a directory that only user %d can enter; remove it", os.Geteuid())
	}
	file := filepath.Join(dir, rootFile)
	owner, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && len(owner) == 0:
		return os.WriteFile(file, []byte(root), 0o600)
	case err == nil && string(owner) != root:
		return fmt.Errorf("it belongs to the root directory %s", owner)
	}
	return err
}

// RemoveDir removes the directory for the sockets of a root directory.
func RemoveDir(ctx context.Context, root string) error { return safepath.RemoveAll(ctx, Dir(root)) }

// Sweep removes the directories of roots that no longer exist, unless a process listens on one of their sockets.
func Sweep(ctx context.Context) error {
	files, err := filepath.Glob(filepath.Join(parent, "*", rootFile))
	errs := []error{err}
	for _, file := range files {
		dir := filepath.Dir(file)
		root, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(root), "/") || Dir(string(root)) != dir {
			continue
		}
		if _, err := os.Lstat(string(root)); errors.Is(err, fs.ErrNotExist) && !serves(ctx, dir) {
			errs = append(errs, safepath.RemoveAll(ctx, dir))
		}
	}
	return errors.Join(errs...)
}

// serves reports whether a process listens on a socket below a directory.
func serves(ctx context.Context, dir string) bool {
	served := errors.New("a process listens")
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type() != fs.ModeSocket {
			return err
		}
		if c, err := Dial(ctx, path); err == nil {
			_ = c.Close()
			return served
		}
		return nil
	})
	return err != nil
}
