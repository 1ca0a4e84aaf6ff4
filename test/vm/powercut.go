package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth/test/powercut"
	"github.com/berth-run/berth/test/powercut/disk"
)

// asPowercut is the first argument of this program for power cuts.
const asPowercut = "powercut"

const (
	churnProgram   = "bin/vm/churn"
	powercutDisk   = 1 << 30 // bytes
	powercutMemory = "1536M"
	// lifeLimit is how long one life of the machine may take before its cut.
	lifeLimit = 20 * time.Minute
)

// powercutPrograms are the host's programs that the machine needs beside the churn and the agent.
const powercutPrograms = "sh mount umount nft dmsetup mke2fs e2fsck"

// powercuts boots a machine with an agent that works, and cuts its power at a random moment; again and again, with the
// same disk. Each boot checks what the agent had confirmed before: see test/powercut/churn.
func powercuts(ctx context.Context) (err error) {
	p := powercutRun{ledger: powercut.Ledger{}}
	flag.StringVar(&p.kernel, "kernel", "", "`directory` of an unpacked linux-image package")
	flag.IntVar(&p.cuts, "cuts", 6, "how many times to cut the power")
	flag.Uint64Var(&p.seed, "seed", 0, "repeat the order of an earlier run; 0 takes another one")
	flag.DurationVar(&p.time, "time", 40*time.Minute, "cut the power no more after this time")
	flag.StringVar(&p.logs, "logs", "bin/powercut", "`directory` for the console of each life")
	flag.StringVar(&p.fault, "fault", "", "how the disk fails in each life; none for a good disk (default in turn)")
	flag.Parse()
	if p.seed == 0 {
		p.seed = uint64(time.Now().UnixNano()) //nolint:gosec // any number will do
	}
	p.random = rand.New(rand.NewPCG(p.seed, 0)) //nolint:gosec // it need not be secret
	fmt.Printf("repeat with -seed %d\n", p.seed)
	if p.dir, err = os.MkdirTemp("", "berth-powercut"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(p.dir)) }()
	if err := os.MkdirAll(p.logs, 0o755); err != nil {
		return err
	}
	err = makeDisk(ctx, filepath.Join(p.dir, "system"),
		image{programs: powercutPrograms, parts: []string{churnProgram, "bin/berth", "bin/workload.tar"}})
	if err != nil {
		return fmt.Errorf("make the disk: %w", err)
	}
	file, err := os.Create(filepath.Join(p.dir, "data"))
	if err != nil {
		return err
	}
	defer file.Close()
	if p.disk, err = disk.New(file, powercutDisk); err != nil {
		return err
	}
	return p.run(ctx)
}

// powercutRun is a machine that loses its power again and again.
type powercutRun struct {
	kernel, dir, logs string
	fault             string
	cuts              int
	seed              uint64
	time              time.Duration
	random            *rand.Rand
	disk              *disk.Disk
	ledger            powercut.Ledger
}

func (p *powercutRun) run(ctx context.Context) error {
	began := time.Now()
	number := 0
	for ; number < p.cuts && time.Since(began) < p.time; number++ {
		l := p.next(number)
		if err := p.live(ctx, l); err != nil {
			return fmt.Errorf("life %d of seed %d: %w; next: read %s", number, p.seed, err, p.log(number))
		}
		loss, err := p.disk.Cut(p.random)
		if err != nil {
			return err
		}
		fmt.Printf("cut %d  %v after %q, fault %q: %d confirmed, %d refused; writes in the cache: %d kept, %d torn, "+
			"%d lost\n", number+1, l.wait.Round(time.Millisecond), l.from, l.fault, l.confirmed, l.refused, loss.Kept,
			loss.Torn, loss.Lost)
	}
	l := powercutLife{number: number, last: true}
	if err := p.live(ctx, &l); err != nil {
		return fmt.Errorf("last life (%d) of seed %d: %w; next: read %s", number, p.seed, err, p.log(number))
	}
	fmt.Printf("ok    %d power cuts  %.0fs\n", number, time.Since(began).Seconds())
	return nil
}

// powercutLife is one life of the machine.
type powercutLife struct {
	number int
	last   bool          // it ends by itself
	from   string        // the stage, or fault, where the time to the cut begins
	wait   time.Duration // the time from then to the cut
	fault  string        // how the disk fails

	confirmed, refused int
}

// next returns the next life. The lives take turns: without a fault, with each fault, and a short one. A flag leaves
// out the faults, or chooses one for all lives.
func (p *powercutRun) next(number int) *powercutLife {
	l := powercutLife{number: number, from: powercut.StageChecked,
		wait: time.Duration(p.random.Int64N(int64(20 * time.Second)))}
	faults := []string{"", "full", "writes", "all", "dead"}
	if p.fault == powercut.FaultNone {
		faults = faults[:1]
	}
	turn := number % (len(faults) + 1)
	switch {
	case number == 0: // the image is loaded, and nothing was cut before
	case p.fault != "" && p.fault != powercut.FaultNone:
		l.fault = p.fault
	case turn < len(faults):
		l.fault = faults[turn]
	default: // while the agent starts after the cut before
		l.from = powercut.StageAgent
	}
	switch l.fault {
	case "":
	case "dead":
		l.from = l.fault
	default:
		l.from = powercut.FaultNone
	}
	return &l
}

func (p *powercutRun) log(number int) string {
	return filepath.Join(p.logs, fmt.Sprintf("life-%d.log", number))
}

// live boots the machine and cuts its power when its time has come.
func (p *powercutRun) live(ctx context.Context, l *powercutLife) (err error) {
	runtime.LockOSThread() // qemu ends with the thread that started it
	ctx, cancel := context.WithTimeout(ctx, lifeLimit)
	defer cancel()
	initrd, err := p.job(l)
	if err != nil {
		return err
	}
	socket := filepath.Join(p.dir, "disk.sock")
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- p.disk.Serve(listener) }()
	defer func() { err = errors.Join(err, listener.Close(), <-served) }()
	qemu, console, err := startMachine(ctx, amd64(p.kernel), initrd, filepath.Join(p.dir, "system"), "-smp", "2", "-m",
		powercutMemory, "-drive", "if=virtio,format=raw,cache=writeback,file.driver=nbd,file.server.type=unix,"+
			"file.server.path="+socket)
	if err != nil {
		return err
	}
	log, err := os.Create(p.log(l.number))
	if err != nil {
		return err
	}
	defer log.Close()
	failed := p.follow(l, io.TeeReader(console, log), qemu)
	_ = qemu.Wait() // the error says that the cut ended it
	if failed == nil && ctx.Err() != nil {
		failed = fmt.Errorf("the machine took longer than %v: %w", lifeLimit, ctx.Err())
	}
	return failed
}

// job writes the initramfs of a life.
func (p *powercutRun) job(l *powercutLife) (path string, err error) {
	ledger, err := json.Marshal(p.ledger)
	if err != nil {
		return "", err
	}
	args := []string{"/berth/" + churnProgram, "-seed", strconv.FormatUint(p.seed, 10), "-life", strconv.Itoa(l.number),
		"-ledger", string(ledger), "-fault", l.fault, "-last=" + strconv.FormatBool(l.last)}
	path = filepath.Join(p.dir, "initrd")
	j := job{Machine: "v2", Commands: []command{{Dir: "/", Args: args}}}
	if err := initramfs(path, amd64(p.kernel), j); err != nil {
		return "", fmt.Errorf("make the initramfs: %w", err)
	}
	return path, nil
}

// follow reads the console, and ends the machine when its time has come.
func (p *powercutRun) follow(l *powercutLife, console io.Reader, qemu *exec.Cmd) error {
	done, cutting := false, make(chan struct{})
	cut := time.AfterFunc(lifeLimit, func() {
		close(cutting)
		_ = qemu.Process.Kill() // it may have ended
	})
	defer cut.Stop()
	for lines := bufio.NewReader(console); ; {
		text, err := lines.ReadString('\n')
		line, ok := powercut.Parse(text)
		switch {
		case err != nil && done:
			return nil
		case err != nil:
			select {
			case <-cutting:
				return nil
			default:
				return errors.New("the machine stopped before its time")
			}
		case !ok:
			continue
		case line.Failed != "":
			rest, err := io.ReadAll(lines) // the machine ends
			return errors.Join(fmt.Errorf("%s\n%s", line.Failed, rest), err)
		}
		p.ledger.Read(line)
		switch {
		case line.Confirm:
			l.confirmed++
		case strings.HasPrefix(line.Note, powercut.Refused):
			l.refused++
		}
		done = done || line.Stage == powercut.StageDone
		if from := line.Stage + line.Fault; from != "" && from == l.from && !l.last {
			cut.Reset(l.wait)
		}
	}
}
