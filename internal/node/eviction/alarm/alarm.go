package alarm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/node/eviction"
)

// stall is the PSI trigger: some task waited for memory for 50 ms of a window of 500 ms, the shortest that the kernel
// has (Documentation/accounting/psi.rst).
const stall = "some 50000 500000"

// step is the change of a level in bytes below which a threshold stays where it is.
const step = 1 << 20

// Groups finds cgroups.
type Groups interface {
	// Machine is the root cgroup. Pods is the cgroup of all pods.
	Machine() (cgroupfile.Group, error)
	Pods() (cgroupfile.Group, error)
}

// Alarm receives the kernel's notifications. It implements eviction.Alarm.
type Alarm struct {
	groups Groups
	log    *slog.Logger
	rang   wake.Signal
	again  int // an eventfd that ends a poll

	mu      sync.Mutex
	ended   bool
	levels  map[eviction.Signal]level
	watched map[string]*os.File // files of PSI and memory.events, by path
}

// level is a threshold of cgroup v1.
type level struct {
	event int // an eventfd
	usage int64
}

// New makes an Alarm. It opens nothing but an eventfd.
func New(groups Groups, log *slog.Logger) (*Alarm, error) {
	again, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make an eventfd: %w", err)
	}
	return &Alarm{groups: groups, log: log, rang: wake.New(), again: again, levels: map[eviction.Signal]level{},
		watched: map[string]*os.File{}}, nil
}

// C implements eviction.Alarm.
func (a *Alarm) C() <-chan struct{} { return a.rang.C() }

// Covers implements eviction.Alarm. Only with the thresholds of cgroup v1 the kernel notifies of every crossing.
func (a *Alarm) Covers(s eviction.Signal) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.levels[s]
	return ok
}

// Arm implements eviction.Alarm.
func (a *Alarm) Arm(s eviction.Signal, seen eviction.Observation, limit int64) {
	find := a.groups.Machine
	switch s {
	case eviction.MemoryAvailable:
	case eviction.AllocatableMemoryAvailable:
		find = a.groups.Pods
	default:
		return
	}
	group, err := find()
	if err != nil {
		return // the next look says so
	}
	dir, ok := group.Dir("memory")
	if !ok {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return
	}
	if group.Unified {
		a.watch(filepath.Join(dir, "memory.pressure"), stall)
		a.watch(filepath.Join(dir, "memory.events"), "")
	}
	if s == eviction.MemoryAvailable {
		a.watch("/proc/pressure/memory", stall)
	}
	if !group.Unified {
		a.setLevel(s, dir, seen.Usage+seen.Available-limit)
	}
}

// watch opens a file that becomes urgent (POLLPRI) when the kernel has news. A kernel without the file, or without PSI,
// never notifies. The caller holds the lock.
func (a *Alarm) watch(path, trigger string) {
	if _, known := a.watched[path]; known {
		return
	}
	a.watched[path] = nil
	mode := os.O_RDONLY
	if trigger != "" {
		mode = os.O_RDWR
	}
	f, err := os.OpenFile(path, mode, 0)
	if err != nil {
		return
	}
	if trigger != "" {
		if _, err := f.WriteString(trigger); err != nil {
			a.log.Debug("cannot set a PSI trigger, continuing without it", "file", path, "err", err)
			_ = f.Close()
			return
		}
	}
	a.watched[path] = f
	a.pollAgain()
}

// setLevel makes the kernel notify when the usage of a cgroup crosses a level. The caller holds the lock.
func (a *Alarm) setLevel(s eviction.Signal, dir string, usage int64) {
	before, known := a.levels[s]
	if known && before.usage-step < usage && usage < before.usage+step {
		return
	}
	if known {
		delete(a.levels, s)
		_ = unix.Close(before.event) // the kernel drops its threshold
	}
	event, err := newLevel(dir, usage)
	if err != nil {
		a.log.Debug("cannot set a memory threshold, continuing without it", "cgroup", dir, "err", err)
	} else {
		a.levels[s] = level{event: event, usage: usage}
	}
	a.pollAgain()
}

// newLevel registers an eventfd with cgroup.event_control (Documentation/admin-guide/cgroup-v1/memory.rst).
func newLevel(dir string, usage int64) (int, error) {
	file, err := os.Open(filepath.Join(dir, "memory.usage_in_bytes"))
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }() // the kernel needs it only for the registration
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return 0, fmt.Errorf("make an eventfd: %w", err)
	}
	line := strconv.Itoa(event) + " " + strconv.Itoa(int(file.Fd())) + " " + strconv.FormatInt(max(0, usage), 10)
	if err := os.WriteFile(filepath.Join(dir, "cgroup.event_control"), []byte(line), 0); err != nil {
		_ = unix.Close(event)
		return 0, err
	}
	return event, nil
}

// pollAgain ends the poll that runs, since the list of files has changed.
func (a *Alarm) pollAgain() { _, _ = unix.Write(a.again, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

// Run passes on notifications until ctx ends.
func (a *Alarm) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if !a.ended { // else the descriptor is closed, and its number may be another file's
			a.ended = true
			a.pollAgain()
		}
	})()
	defer a.close()
	for ctx.Err() == nil {
		fds := a.fds()
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return fmt.Errorf("wait for the kernel's notifications of memory: %w", err)
		}
		a.receive(fds)
	}
	return ctx.Err()
}

func (a *Alarm) fds() []unix.PollFd {
	a.mu.Lock()
	defer a.mu.Unlock()
	fds := []unix.PollFd{{Fd: int32(a.again), Events: unix.POLLIN}}
	for _, l := range a.levels {
		fds = append(fds, unix.PollFd{Fd: int32(l.event), Events: unix.POLLIN})
	}
	for _, f := range a.watched {
		if f != nil {
			fds = append(fds, unix.PollFd{Fd: int32(f.Fd()), Events: unix.POLLPRI})
		}
	}
	return fds
}

// receive wakes the loop if a file has news, and drops files of cgroups that are gone.
func (a *Alarm) receive(fds []unix.PollFd) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var count [8]byte
	_, _ = unix.Read(a.again, count[:]) // it does not block
	ready := map[int32]int16{}
	for _, f := range fds[1:] {
		ready[f.Fd] = f.Revents
	}
	for s, l := range a.levels {
		if ready[int32(l.event)] != 0 {
			// The kernel also notifies when it removes the cgroup. The next Arm sets the threshold anew.
			_ = unix.Close(l.event)
			delete(a.levels, s)
			a.rang.Wake()
		}
	}
	for path, f := range a.watched {
		if f == nil || ready[int32(f.Fd())] == 0 {
			continue
		}
		a.rang.Wake()
		var text [1024]byte // reading makes memory.events wait for its next change
		if _, err := f.ReadAt(text[:], 0); err != nil && !errors.Is(err, io.EOF) {
			_ = f.Close()
			delete(a.watched, path) // the next Arm opens the file of a new cgroup
		}
	}
}

func (a *Alarm) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	for s, l := range a.levels {
		_ = unix.Close(l.event)
		delete(a.levels, s)
	}
	for path, f := range a.watched {
		if f != nil {
			_ = f.Close()
		}
		delete(a.watched, path)
	}
	_ = unix.Close(a.again)
}
