package child

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/containerd/go-runc"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/pidfd"
	"github.com/berth-run/berth/internal/base/poll"
)

// UnknownStatus is the exit code of a process whose real code is unknown. containerd uses the same code.
const UnknownStatus = 255

// Watch returns a channel that gets the exit of a process that is no child of this one. The descriptor remains the
// caller's.
func Watch(pid, fd int) (<-chan runc.Exit, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate pidfd: %w", err)
	}
	if err := unix.SetNonblock(own, true); err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(own), "pidfd") // non-blocking, so that waiting costs no thread
	conn, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	exits := make(chan runc.Exit, 1)
	go func() {
		defer file.Close()
		_ = conn.Read(func(fd uintptr) bool { return pidfd.Ended(int(fd)) })
		exits <- runc.Exit{Timestamp: time.Now(), Pid: pid, Status: exitOf(pid, own)}
	}()
	return exits, nil
}

// exitOf returns the exit code of a process that has ended. While its parent has not taken the code, /proc has it.
// Afterwards the kernel has it, since version 6.15. Without either the code is unknown.
func exitOf(pid, fd int) int {
	code := UnknownStatus
	poll.Pace{First: time.Millisecond, Limit: time.Second}.Until(func() (done bool) {
		if stat, err := ReadStat(pid); err == nil && (stat.State == "Z" || stat.State == "X") {
			code = codeOf(stat.Status)
			return true
		}
		status, known, supported := exitInfo(fd)
		if known {
			code = codeOf(status)
		}
		return known || !supported
	})
	return code
}

// exitInfo asks the kernel for the exit of a process that its parent has waited for (PIDFD_GET_INFO).
func exitInfo(fd int) (status unix.WaitStatus, known, supported bool) {
	const (
		getInfo  = 0xc040ff0b // _IOWR(0xff, 11, struct of 64 bytes)
		exitMask = 1 << 3
	)
	info := struct {
		mask, cgroup uint64
		ids          [11]uint32
		exit         int32
	}{mask: exitMask}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), getInfo, uintptr(unsafe.Pointer(&info)))
	if errno == unix.ESRCH {
		return 0, false, true // it has ended, and its parent has not waited for it
	}
	return unix.WaitStatus(info.exit), errno == 0 && info.mask&exitMask != 0, errno == 0
}

// Is reports whether a descriptor is a pidfd of a process that started at this time, or that has ended.
func Is(fd, pid int, started uint64) bool {
	content, err := os.ReadFile(filepath.Join("/proc/self/fdinfo", strconv.Itoa(fd)))
	if err != nil {
		return false
	}
	_, value, ok := strings.Cut(string(content), "\nPid:\t")
	value, _, _ = strings.Cut(value, "\n")
	switch {
	case !ok:
		return false
	case value == "-1": // its parent has waited for it, and it no longer has a number
		return true
	case value != strconv.Itoa(pid):
		return false
	}
	stat, err := ReadStat(pid)
	return err == nil && stat.Started == started || pidfd.Ended(fd)
}

// Open opens a pidfd of a process, unless its number belongs to another process by now.
func Open(pid int, started uint64) (fd int, ok bool) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1, false
	}
	if stat, err := ReadStat(pid); err != nil || stat.Started != started {
		_ = unix.Close(fd)
		return -1, false
	}
	return fd, true
}
