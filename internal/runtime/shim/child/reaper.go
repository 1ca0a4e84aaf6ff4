package child

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/go-runc"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/sysmon"
)

// Reaper waits for all children of this process: runc's, and the containers that runc or this process has created. It
// never blocks on those who want to know of an exit.
type Reaper struct {
	mu sync.Mutex
	// waiting has a channel with room for the exit of each known child.
	waiting map[int]chan runc.Exit
	// starting has the numbers of the starts in progress, and started is the number of the last start. While a start is
	// in progress, early keeps the exits of unknown children since then: one may be of a child whose number its starter
	// does not know yet.
	starting map[uint64]bool
	started  uint64
	early    map[int]earlyExit
	// leaving is how many libraries start children. Then only followed children are reaped.
	leaving int
	// more asks Run to look again.
	more chan struct{}
	// hidden is a variable of this process's environment, NAME=VALUE, that is not for the commands it starts.
	hidden string
}

// earlyExit is the exit of an unknown child. started is the number of the last start before it.
type earlyExit struct {
	runc.Exit
	started uint64
}

// NewReaper makes a reaper. Run starts it. hidden is a variable of this process's environment, NAME=VALUE, that Start
// keeps from commands, empty for none. A command that has the same variable for itself keeps it.
func NewReaper(hidden string) *Reaper {
	return &Reaper{
		waiting: map[int]chan runc.Exit{}, starting: map[uint64]bool{}, early: map[int]earlyExit{},
		more: make(chan struct{}, 1), hidden: hidden,
	}
}

// Run reaps for ever.
func (r *Reaper) Run() {
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	for {
		r.reap()
		select {
		case <-children:
		case <-r.more:
		}
	}
}

// reap takes the exits of all children that have ended. It holds the lock meanwhile: until then, the number of an ended
// child belongs to no other process.
func (r *Reaper) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leaving > 0 {
		for pid := range r.waiting {
			r.take(pid)
		}
		return
	}
	for r.take(-1) {
	}
}

// take takes the exit of a child, or of any child for -1. It returns false if none has ended.
func (r *Reaper) take(child int) bool {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(child, &status, unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return false
		}
		exit := runc.Exit{Timestamp: time.Now(), Pid: pid, Status: codeOf(status)}
		if waiter, ok := r.waiting[pid]; ok {
			delete(r.waiting, pid)
			waiter <- exit
		} else if len(r.starting) > 0 {
			r.early[pid] = earlyExit{exit, r.started}
		}
		return true
	}
}

// Leave leaves the children that nobody follows to a library, which starts them and waits for them itself, until the
// result is called. It does so for a minute at most: a library that hangs must not keep the others for ever.
func (r *Reaper) Leave() (end func()) {
	const limit = time.Minute
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaving++
	over := sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.leaving--
		r.again()
	})
	late := time.AfterFunc(limit, over)
	return func() {
		late.Stop()
		over()
	}
}

// again lets Run look again.
func (r *Reaper) again() {
	select {
	case r.more <- struct{}{}:
	default:
	}
}

// codeOf is the code of an exit as shells have it: 128 and the signal's number for a process that a signal ended.
func codeOf(status unix.WaitStatus) int {
	if status.Signaled() {
		const signalled = 128
		return signalled + int(status.Signal())
	}
	return status.ExitStatus()
}

// Begin announces that a process is being started. Call the result afterwards.
func (r *Reaper) Begin() (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started++
	number := r.started
	r.starting[number] = true
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.starting, number)
		oldest := r.started + 1
		for other := range r.starting {
			oldest = min(oldest, other)
		}
		// An exit that is older than all starts in progress belongs to none of them. A later child may have its number.
		maps.DeleteFunc(r.early, func(_ int, exit earlyExit) bool { return exit.started < oldest })
	}
}

// Follow returns a channel that gets the exit of a child, and a pidfd of it, which is -1 if it has ended. Call it
// between Begin and its end.
func (r *Reaper) Follow(pid int) (<-chan runc.Exit, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiter := make(chan runc.Exit, 1)
	if exit, ok := r.early[pid]; ok {
		delete(r.early, pid)
		waiter <- exit.Exit
		return waiter, -1
	}
	r.waiting[pid] = waiter
	if r.leaving > 0 {
		r.again() // it may have ended, and was not known
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		fd = -1
	}
	return waiter, fd
}

// Own is Follow for a process that may be a child. It reports whether it is one.
func (r *Reaper) Own(pid int) (<-chan runc.Exit, bool) {
	r.mu.Lock()
	_, ended := r.early[pid]
	stat, err := ReadStat(pid)
	r.mu.Unlock()
	if !ended && (err != nil || stat.Parent != os.Getpid()) {
		return nil, false
	}
	exits, pidfd := r.Follow(pid)
	if pidfd >= 0 {
		_ = unix.Close(pidfd)
	}
	return exits, true
}

// relaxed is in the environment of a command that Start starts relaxed. Package runc has no other way to the command.
const relaxed = "BERTH_RELAXED=1"

// Relaxed is a context for calls of runc that start it with sysmon.StartRelaxed. A process that runc leaves needs
// sysmon.Restore.
func Relaxed(ctx context.Context) context.Context { return runc.WithExtraEnv(ctx, relaxed) }

// Start implements runc.ProcessMonitor.
func (r *Reaper) Start(command *exec.Cmd) (chan runc.Exit, error) {
	defer r.Begin()()
	if at := slices.Index(command.Env, r.hidden); at >= 0 { // those for itself come after those of this process
		command.Env = slices.Delete(command.Env, at, at+1)
	}
	start := sysmon.Start
	if at := slices.Index(command.Env, relaxed); at >= 0 {
		command.Env = slices.Delete(command.Env, at, at+1)
		start = sysmon.StartRelaxed
	}
	if err := start(command); err != nil {
		return nil, err
	}
	exit, pidfd := r.Follow(command.Process.Pid)
	if pidfd >= 0 {
		_ = unix.Close(pidfd)
	}
	result := make(chan runc.Exit, 1)
	go func() {
		result <- <-exit
		close(result)
	}()
	return result, nil
}

// StartLocked implements runc.ProcessMonitor. The thread that starts the process stays until the process has ended,
// since its end would end the process too (PR_SET_PDEATHSIG).
func (r *Reaper) StartLocked(command *exec.Cmd) (chan runc.Exit, error) {
	type started struct {
		exits chan runc.Exit
		err   error
	}
	start := make(chan started, 1)
	result := make(chan runc.Exit, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		exits, err := r.Start(command)
		start <- started{exits, err}
		if err == nil {
			result <- <-exits
		}
		close(result)
	}()
	s := <-start
	return result, s.err
}

// Wait implements runc.ProcessMonitor.
func (*Reaper) Wait(command *exec.Cmd, exits chan runc.Exit) (int, error) {
	exit := <-exits
	_ = command.Wait() // closes its pipes; another caller has its exit
	return exit.Status, nil
}
