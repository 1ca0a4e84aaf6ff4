package emptydir

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/pod/steps/volume"
)

// option is a mount option of a file system. An option without a value is a flag.
type option struct {
	name, value string
	// optional: an older kernel may lack the option.
	optional bool
}

// mount mounts a new file system with these options on target, unless a file system of its type is mounted there. Its
// root has the given mode from the start.
func mount(target, fsType string, magic int64, mode uint32, options []option) error {
	mounted, err := volume.Mounted(target, magic)
	if err != nil || mounted {
		return err
	}
	if err := os.Mkdir(target, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	fs, err := unix.Fsopen(fsType, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("open file system %s: %w", fsType, err)
	}
	defer func() { _ = unix.Close(fs) }()
	for _, o := range options {
		var err error
		if o.value == "" {
			err = unix.FsconfigSetFlag(fs, o.name)
		} else {
			err = unix.FsconfigSetString(fs, o.name, o.value)
		}
		if err != nil && (!o.optional || !errors.Is(err, unix.EINVAL)) {
			return fmt.Errorf("set %s=%s on %s: %w%s", o.name, o.value, fsType, err, kernelMessage(fs))
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return fmt.Errorf("make %s: %w%s", fsType, err, kernelMessage(fs))
	}
	made, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("mount %s: %w%s", fsType, err, kernelMessage(fs))
	}
	defer func() { _ = unix.Close(made) }()
	if err := unix.Fchmodat(made, ".", mode, 0); err != nil { // as an option, hugetlbfs drops the setgid bit
		return fmt.Errorf("chmod the new %s: %w", fsType, err)
	}
	if err := unix.MoveMount(made, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "move_mount", Path: target, Err: err}
	}
	return nil
}

// kernelMessage is the kernel's message about a file system that it refused.
func kernelMessage(fs int) string {
	b := make([]byte, 1024)
	n, err := unix.Read(fs, b)
	if err != nil || n <= 0 {
		return ""
	}
	// The first letter is the level of the message: "e tmpfs: Bad value".
	text := strings.TrimSpace(string(b[:n]))
	if _, message, ok := strings.Cut(text, " "); ok {
		text = message
	}
	return " (" + text + ")"
}

// NoSwap reports whether the kernel can keep a tmpfs out of the swap (Linux 6.4).
func NoSwap() bool {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fs) }()
	return unix.FsconfigSetFlag(fs, "noswap") == nil
}
