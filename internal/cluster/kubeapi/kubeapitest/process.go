package kubeapitest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// nursery starts processes that end with this process, even if it is killed. The kernel ties them to the thread that
// started them, so the nursery keeps one thread.
type nursery struct {
	requests chan birth
	closed   chan struct{}
}

type birth struct {
	cmd  *exec.Cmd
	done chan error
}

func newNursery() *nursery {
	n := &nursery{requests: make(chan birth), closed: make(chan struct{})}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		defer close(n.closed)
		for r := range n.requests {
			r.done <- r.cmd.Start()
		}
	}()
	return n
}

func (n *nursery) start(cmd *exec.Cmd) error {
	r := birth{cmd: cmd, done: make(chan error)}
	n.requests <- r
	return <-r.done
}

// close ends the started processes.
func (n *nursery) close() {
	close(n.requests)
	<-n.closed
}

// process is a running server.
type process struct {
	name, log string
	cmd       *exec.Cmd
	over      chan struct{} // closed after it has ended and was reaped
	killed    bool          // by kill
}

// run starts a server of the program in dir. Its output goes to NAME.log there.
func (n *nursery) run(program, dir, name string, flags ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), over: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.CommandContext(context.Background(), program, append([]string{name}, flags...)...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, log, log
	p.cmd.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, Setpgid: true}
	if err := n.start(p.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // usually ended by our signal; answers and unexpected report a crash
		close(p.over)
	}()
	return p, nil
}

// do acts on the process, such as (*os.Process).Kill. It does nothing if the process has ended.
func (p *process) do(action func(*os.Process) error) error {
	if p == nil {
		return errElsewhere
	}
	if err := action(p.cmd.Process); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// kill returns after the process has ended.
func (p *process) kill() error {
	err := p.do((*os.Process).Kill)
	if err == nil {
		p.killed = true
		<-p.over
	}
	return err
}

// unexpected returns an error if the process has ended without kill.
func (p *process) unexpected() error {
	select {
	case <-p.over:
		if !p.killed {
			return fmt.Errorf("%s ended by itself; it said:\n%s", p.name, p.lastOutput())
		}
	default:
	}
	return nil
}

// lastOutput returns the end of the process's output.
func (p *process) lastOutput() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}

// port is a reserved TCP port of 127.0.0.1. It is bound but not listened on, with SO_REUSEPORT, so that the server
// can bind it and no other process gets it until close.
type port struct {
	fd     int
	number int
}

func reserve() (port, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return port{}, fmt.Errorf("reserve port: %w", err)
	}
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	if err != nil {
		_ = unix.Close(fd)
		return port{}, fmt.Errorf("reserve port: %w", err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		_ = unix.Close(fd)
		return port{}, fmt.Errorf("reserve port: %w", err)
	}
	return port{fd: fd, number: name.(*unix.SockaddrInet4).Port}, nil
}

func (p port) close() { _ = unix.Close(p.fd) }

func (p port) String() string { return strconv.Itoa(p.number) }

// address returns the address of the port.
func (p port) address() string { return net.JoinHostPort("127.0.0.1", p.String()) }

const prefix = "berth-cluster-"

// newDir makes the directory of a cluster, in memory if possible, because etcd writes much. It removes the
// directories of killed tests.
func newDir() (string, error) {
	base := "/dev/shm"
	if info, err := os.Stat(base); err != nil || !info.IsDir() {
		base = os.TempDir()
	}
	left, err := filepath.Glob(filepath.Join(base, prefix+"*"))
	if err != nil {
		return "", err
	}
	for _, dir := range left {
		owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), prefix), "-")
		if pid, err := strconv.Atoi(owner); err == nil && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			_ = os.RemoveAll(dir) // otherwise the next cluster removes it
		}
	}
	return os.MkdirTemp(base, prefix+strconv.Itoa(os.Getpid())+"-")
}

// program returns the path of bin/cluster of this module.
func program() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("find bin/cluster: the test does not run inside the module")
		}
		dir = filepath.Dir(dir)
	}
	path := filepath.Join(dir, "bin/cluster")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: run make cluster", err)
	}
	return path, nil
}
