package csi

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// detachLoops detaches the loop devices whose file is path, by what the kernel says
// of them: losetup(8) detaches by LOOP_CLR_FD of loop(4) as well.
func detachLoops(path string) error {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file") // the pattern is good
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil || strings.TrimSpace(string(text)) != path {
			continue // another has detached it
		}
		device := filepath.Join("/dev", filepath.Base(filepath.Dir(filepath.Dir(name))))
		f, err := os.Open(device)
		if err != nil {
			return fmt.Errorf("detach what is on %s: %w", path, err)
		}
		err = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
		_ = f.Close() // only now it is detached
		if err != nil && !errors.Is(err, unix.ENXIO) {
			return fmt.Errorf("detach %s, which is on %s: %w", device, path, err)
		}
	}
	return nil
}
