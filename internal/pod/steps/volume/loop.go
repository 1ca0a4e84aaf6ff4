package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// DetachLoops detaches the loop devices whose backing file is path (LOOP_CLR_FD, see loop(4)).
func DetachLoops(path string) error {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file") // an error would mean a bad pattern
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil || strings.TrimSpace(string(text)) != path {
			continue // another process has detached it
		}
		device := filepath.Join("/dev", filepath.Base(filepath.Dir(filepath.Dir(name))))
		f, err := os.Open(device)
		if err != nil {
			return fmt.Errorf("detach the loop device on %s: %w", path, err)
		}
		err = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
		_ = f.Close() // the close detaches it
		if err != nil && !errors.Is(err, unix.ENXIO) {
			return fmt.Errorf("detach loop device %s on %s: %w", device, path, err)
		}
	}
	return nil
}
