package holder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/boot"
	"github.com/berth-run/berth/internal/base/pidfd"
)

// Identity identifies a holder on disk. A process ID alone does not: the kernel gives it to another process once the
// holder has ended.
type Identity struct {
	PID int
	// Start is when the holder started, in clock ticks since the boot.
	Start uint64
	// Boot identifies the boot.
	Boot string
}

// Process is a running holder.
type Process struct {
	Identity

	file  *os.File // its pidfd
	input *os.File // it waits there to be released, nil afterwards
	ended chan struct{}
}

// Open returns the holder with this identity. The error is errdefs.ErrNotFound if it has ended.
func Open(id Identity) (*Process, error) {
	current, err := boot.ID()
	if err != nil {
		return nil, err
	}
	if id.Boot != current {
		return nil, fmt.Errorf("holder %d is from before the last boot: %w", id.PID, errdefs.ErrNotFound)
	}
	p, err := open(id.PID)
	if err != nil {
		return nil, err
	}
	if p.Start != id.Start {
		_ = p.file.Close()
		return nil, fmt.Errorf("holder %d has ended, another process has its ID: %w", id.PID, errdefs.ErrNotFound)
	}
	var ended bool
	conn, err := p.file.SyscallConn()
	if err == nil {
		err = conn.Control(func(fd uintptr) { ended = pidfd.Ended(int(fd)) })
	}
	if err != nil {
		return nil, errors.Join(err, p.file.Close())
	}
	if ended {
		_ = p.file.Close()
		return nil, fmt.Errorf("holder %d has ended: %w", id.PID, errdefs.ErrNotFound)
	}
	p.watch()
	return p, nil
}

// open opens a process and reads its identity. The descriptor stays with the process when the ID is used again, so that
// the start time is read after it is open.
func open(pid int) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	// The kernel may give the ID of an ended holder to a thread. That is EINVAL, in newer kernels ENOENT.
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("holder %d has ended: %w", pid, errdefs.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("open holder %d: %w", pid, err)
	}
	p := &Process{file: os.NewFile(uintptr(fd), "pidfd"), ended: make(chan struct{})}
	p.PID = pid
	if p.Boot, err = boot.ID(); err == nil {
		p.Start, err = readStart(pid)
	}
	if err != nil {
		_ = p.file.Close()
		return nil, err
	}
	return p, nil
}

func readStart(pid int) (uint64, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return 0, fmt.Errorf("holder %d has ended: %w", pid, errdefs.ErrNotFound)
	}
	if err != nil {
		return 0, err
	}
	return startOf(string(stat))
}

// watch closes ended when the process has ended. A pidfd becomes readable then; until then the goroutine waits in Go's
// network poller and uses no thread.
func (p *Process) watch() {
	go func() {
		defer close(p.ended)
		defer p.file.Close()
		conn, err := p.file.SyscallConn()
		if err != nil {
			return
		}
		// It fails only if the file is closed, which happens afterwards.
		_ = conn.Read(func(fd uintptr) bool { return pidfd.Ended(int(fd)) })
	}()
}

// Release lets a started holder outlive this process.
func (p *Process) Release() error {
	_, err := p.input.Write([]byte{1})
	return errors.Join(err, p.input.Close())
}

// Kill ends the holder, and with it all processes of a PID namespace that it has made. It returns before they have
// ended.
func (p *Process) Kill() {
	conn, err := p.file.SyscallConn()
	if err != nil {
		return // the file is closed once the holder has ended
	}
	_ = conn.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
}

// Ended returns a channel that is closed when the holder has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// AdjustOOM sets the score of the process. When memory is short, the kernel ends processes with high scores first, see
// proc_pid_oom_score_adj(5).
func (p *Process) AdjustOOM(score int) error {
	return os.WriteFile(filepath.Join("/proc", strconv.Itoa(p.PID), "oom_score_adj"), []byte(strconv.Itoa(score)), 0)
}
