package witness

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/pidfd"
)

// name is the name of the thread, by which another process finds it.
const name = "witness"

// Start starts the witness of this process. Other processes find it when Start returns.
func Start() {
	named := make(chan struct{})
	go stay(named)
	<-named
}

// stay is the witness. It closes named when its thread has its name. The main thread cannot be the witness: the kernel
// reports its end only with the end of all threads.
func stay(named chan struct{}) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		go stay(named) // runs on another thread, since this one is locked until then
		<-named
		runtime.UnlockOSThread()
		return
	}
	comm := append([]byte(name), 0)
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&comm[0])), 0, 0, 0)
	close(named)
	select {}
}

// Open returns a file that is readable when the witness of a process has ended. Reading waits without a thread. The
// error is errors.ErrUnsupported for a process without a witness and for an older kernel.
func Open(pid int) (*os.File, error) {
	threads, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task/*/comm"))
	if err != nil {
		return nil, err
	}
	for _, file := range threads {
		comm, err := os.ReadFile(file)
		if err != nil || strings.TrimSpace(string(comm)) != name {
			continue // it has ended, or is another thread
		}
		tid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, err
		}
		const thread = unix.O_EXCL // PIDFD_THREAD
		fd, err := unix.PidfdOpen(tid, unix.PIDFD_NONBLOCK|thread)
		if errors.Is(err, unix.EINVAL) {
			err = errors.ErrUnsupported
		}
		if err != nil {
			return nil, fmt.Errorf("open witness of process %d: %w", pid, err)
		}
		return os.NewFile(uintptr(fd), "witness"), nil
	}
	return nil, fmt.Errorf("open witness of process %d: %w", pid, errors.ErrUnsupported)
}

// Await waits until the witness of a file from Open has ended. It returns an error if the file was closed before.
func Await(file *os.File) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	return conn.Read(func(fd uintptr) bool { return pidfd.Ended(int(fd)) })
}
