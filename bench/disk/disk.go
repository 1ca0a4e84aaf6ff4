package disk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// size is the size of the ext4, in bytes. It uses the space of the files in it.
const size = 32 << 30

// Disk has the file systems of a measurement. The paths are short, because sockets lie below them.
type Disk struct {
	// Dir is the directory of a new ext4.
	Dir string
	// Memory is the directory of a new tmpfs.
	Memory string

	top string
}

// New makes the file systems: the ext4 with the defaults of mkfs.ext4, on a file. From then on, temporary files of this
// process are in Dir.
func New() (*Disk, error) {
	top, err := os.MkdirTemp("", "bd")
	if err != nil {
		return nil, err
	}
	d := &Disk{Dir: filepath.Join(top, "d"), Memory: filepath.Join(top, "m"), top: top}
	if err := d.make(); err != nil {
		return nil, errors.Join(fmt.Errorf("make file systems: %w", err), d.Close())
	}
	return d, os.Setenv("TMPDIR", d.Dir)
}

func (d *Disk) make() error {
	image := filepath.Join(d.top, "image")
	if err := errors.Join(os.Mkdir(d.Dir, 0o755), os.Mkdir(d.Memory, 0o755), os.WriteFile(image, nil, 0o600),
		os.Truncate(image, size)); err != nil {
		return err
	}
	for _, command := range [][]string{
		{"mkfs.ext4", "-q", "-F", image}, {"mount", "-o", "loop", image, d.Dir},
		{"mount", "-t", "tmpfs", "-o", "mode=755", "bench", d.Memory},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", command[0], err, out)
		}
	}
	return nil
}

// Close removes the file systems and all in them. The kernel frees the loop device with the last mount.
func (d *Disk) Close() (err error) {
	for _, dir := range []string{d.Memory, d.Dir} {
		failed := unix.Unmount(dir, 0)
		if errors.Is(failed, unix.EINVAL) || errors.Is(failed, unix.ENOENT) {
			continue // it is not mounted
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("unmount %s: %w", dir, failed))
		}
	}
	if err != nil {
		return err // a process still uses the files
	}
	return os.RemoveAll(d.top)
}
