package processors

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/wake"
)

const (
	// A process that uses less CPU time than little in a period is idle.
	period = 10 * time.Second
	little = 100 * time.Millisecond
)

// Processors sets how many processors run Go code in this process.
type Processors struct {
	period, little time.Duration
	all            func() // makes Go use all processors
	active         wake.Signal
	used           wake.Signal // the process has used much CPU time since watch

	mu       sync.Mutex
	resting  bool
	watching bool
}

// New makes a Processors.
func New() *Processors {
	return &Processors{period: period, little: little, all: everyOne(), active: wake.New(), used: wake.New()}
}

// everyOne returns what makes Go use as many processors as now. If GOMAXPROCS is not set, Go follows the limits of the
// process's cgroup.
func everyOne() func() {
	if os.Getenv("GOMAXPROCS") == "" {
		return runtime.SetDefaultGOMAXPROCS
	}
	own := runtime.GOMAXPROCS(0)
	return func() { runtime.GOMAXPROCS(own) }
}

// Run makes Go use one processor while the process is idle, until ctx ends: after a period in which it used little CPU
// time and nobody called Stir, up to the next call of Stir, or until it uses more. The kernel wakes Run then, so that
// looking for it costs nothing.
func (p *Processors) Run(ctx context.Context) error {
	if runtime.GOMAXPROCS(0) == 1 || sleepCPU(0) != nil { // a kernel without timers of CPU time
		<-ctx.Done()
		return ctx.Err()
	}
	defer p.end()
	for {
		before, err := cpuTime()
		if err != nil {
			return fmt.Errorf("read the CPU time of the process: %w", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.active.C():
			continue
		case <-time.After(p.period):
		}
		if after, err := cpuTime(); err != nil || after-before >= p.little {
			continue
		}
		p.rest()
		if err := p.followRest(ctx); err != nil {
			return err
		}
		p.end()
	}
}

// followRest returns when the process is no longer idle. An error says that ctx has ended.
func (p *Processors) followRest(ctx context.Context) error {
	for p.used.Clear(); ; { // CPU time from before the rest does not count
		began := time.Now()
		p.watch()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.active.C():
			return nil
		case <-p.used.C():
			if time.Since(began) < p.period {
				return nil
			}
		}
	}
}

// rest makes Go use one processor.
func (p *Processors) rest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resting = true
	runtime.GOMAXPROCS(1)
}

// end ends a rest.
func (p *Processors) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.resting {
		p.resting = false
		p.all()
	}
}

// Stir reports activity, and ends a rest at once.
func (p *Processors) Stir() {
	p.end()
	p.active.Wake()
}

// watch raises used when the process has used as much CPU time from now on as is not little. It starts a thread that
// sleeps until then, also when Run has ended, unless there is one from an earlier rest.
func (p *Processors) watch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watching {
		return
	}
	p.watching = true
	go func() {
		_ = sleepCPU(p.little) // Run has tried it
		p.mu.Lock()
		p.watching = false
		p.mu.Unlock()
		p.used.Wake()
	}()
}

// sleepCPU sleeps until the process has used some CPU time.
func sleepCPU(d time.Duration) error {
	now, err := cpuTime()
	if err != nil {
		return err
	}
	until := unix.NsecToTimespec(int64(now + d))
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.ClockNanosleep(unix.CLOCK_PROCESS_CPUTIME_ID, unix.TIMER_ABSTIME, &until, nil)
	}
	return err
}

// cpuTime is the CPU time that all threads of the process have used.
func cpuTime() (time.Duration, error) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now)
	return time.Duration(now.Nano()), err
}
