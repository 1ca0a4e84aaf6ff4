package quota

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Commands of quotactl(2) for project quotas, and their structures (linux/quota.h, linux/dqblk_xfs.h).
const (
	projectQuota = 2
	getQuota     = 0x800007
	setQuota     = 0x800008
	getState     = 'X'<<8 + 8 // Q_XGETQSTATV

	validBlockLimits = 1 // QIF_BLIMITS
	stateVersion     = 1
	accounted        = 1 << 4 // FS_QUOTA_PDQ_ACCT
	enforced         = 1 << 5 // FS_QUOTA_PDQ_ENFD
)

// Requests of ioctl_xfs_fsgetxattr(2). Both file systems know them.
const (
	getAttributes = 0x801c581f
	setAttributes = 0x401c5820
	inherit       = 0x200 // FS_XFLAG_PROJINHERIT: new files get the project of their directory
)

// block is struct if_dqblk.
type block struct {
	hardBlocks, softBlocks uint64 // limits in blocks of 1 KiB
	space                  uint64 // in use, in bytes
	hardInodes, softInodes uint64
	inodes                 uint64
	blockTime, inodeTime   uint64
	valid                  uint32
	_                      uint32
}

// unused reports whether an ID has neither files nor limits.
func (b block) unused() bool {
	return b.space == 0 && b.inodes == 0 && b.hardBlocks == 0 && b.softBlocks == 0 && b.hardInodes == 0 &&
		b.softInodes == 0
}

// state is struct fs_quota_statv.
type state struct {
	version int8
	_       uint8
	flags   uint16
	_       [156]byte
}

// attributes is struct fsxattr.
type attributes struct {
	flags, extentSize, extents, project, copySize uint32
	_                                             [8]byte
}

// control calls quotactl_fd(2), which needs no name of a device. It is new in Linux 5.14.
func control(fs *os.File, command, id uint32, data unsafe.Pointer) error {
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, fs.Fd(), uintptr(command<<8|projectQuota), uintptr(id),
		uintptr(data), 0, 0)
	if errno != 0 {
		return os.NewSyscallError("quotactl_fd", errno)
	}
	return nil
}

// read returns the kernel's counts and limits for an ID. xfs has no record of an ID that was never used.
func read(fs *os.File, id uint32) (b block, err error) {
	err = control(fs, getQuota, id, unsafe.Pointer(&b))
	if errors.Is(err, unix.ENOENT) {
		return block{}, nil
	}
	return b, err
}

// limit sets the hard limit of an ID in blocks of 1 KiB; 0 is no limit.
func limit(fs *os.File, id uint32, blocks uint64) error {
	b := block{hardBlocks: blocks, valid: validBlockLimits}
	return control(fs, setQuota, id, unsafe.Pointer(&b))
}

// stateOf returns the state of the project quotas of a file system. A file system without quotas has the zero State.
func stateOf(fs *os.File) (State, error) {
	s := state{version: stateVersion}
	err := control(fs, getState, 0, unsafe.Pointer(&s))
	switch {
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENODEV),
		errors.Is(err, unix.ENOTBLK), errors.Is(err, unix.EOPNOTSUPP):
		return State{}, nil
	case err != nil:
		return State{}, err
	}
	return State{Counts: s.flags&accounted != 0, Limits: s.flags&enforced != 0}, nil
}

// attributesOf calls an ioctl of the file with its attributes.
func attributesOf(f *os.File, request uintptr, a *attributes) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(a))); errno != 0 {
		return &os.PathError{Op: "ioctl", Path: f.Name(), Err: errno}
	}
	return nil
}

// setProject sets the project of an open directory, and of all files that will be made in it.
func setProject(dir *os.File, id uint32) error {
	var a attributes
	if err := attributesOf(dir, getAttributes, &a); err != nil {
		return err
	}
	if a.project, a.flags = id, a.flags|inherit; id == 0 {
		a.flags &^= inherit
	}
	return attributesOf(dir, setAttributes, &a)
}
