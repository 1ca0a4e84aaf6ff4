package roottest

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// HangSource is the source of the mounts of Hang, as the kernel lists it.
const HangSource = "hang"

// Hang mounts a FUSE file system whose server never answers. Every call that looks at a path below dir waits in the
// kernel until release is called. release ends these calls with an error and unmounts the file system.
func Hang(dir string) (release func() error, err error) {
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("hang %s: %w", dir, err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", server.Fd())
	if err := unix.Mount(HangSource, dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return nil, errors.Join(fmt.Errorf("hang %s: %w", dir, err), server.Close())
	}
	return func() error {
		// The unmounting comes first: calls that hang fail when the server is gone, and find the directory at once.
		return errors.Join(unix.Unmount(dir, unix.MNT_DETACH), server.Close())
	}, nil
}
