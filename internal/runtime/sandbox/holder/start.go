package holder

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"syscall"

	"github.com/containerd/containerd/v2/pkg/sys"
	"github.com/opencontainers/selinux/go-selinux"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/sysmon"
)

// Flags of clone(2).
const (
	newIPC = unix.CLONE_NEWIPC
	newUTS = unix.CLONE_NEWUTS
	newPID = unix.CLONE_NEWPID
)

// Config describes a holder to start.
type Config struct {
	// ID is the sandbox's ID. It is shown in the list of processes.
	ID string
	// Namespaces of the pod. The user namespace owns the network namespace. A pod in the host's network gets a new user
	// namespace with the mappings.
	Namespaces Namespaces
	// NetworkPath is a file of the network namespace to join.
	NetworkPath string
	// UIDs and GIDs are the mappings of the user namespace, as CONTAINER:HOST:LENGTH.
	UIDs, GIDs string
	// Hostname is set if the pod has a UTS namespace and Hostname is not empty.
	Hostname string
	Sysctls  []Sysctl
	// Label is the SELinux label of the process. Empty: it inherits one.
	Label string
	// Cgroups are the directories of the cgroup that the holder starts in: one in each hierarchy. In other hierarchies
	// it starts in the cgroup of this process.
	Cgroups []string
}

// Starter starts holders.
type Starter struct {
	program string
	code    *os.File // a read-only copy of the program
	mounts  *os.File // a mount namespace without files
	sysctls *os.File
	into    bool // clone(2) can make a process in another cgroup (CLONE_INTO_CGROUP)
}

// NewStarter returns a starter for the installed program. dir is an empty directory.
//
// A process of a pod that may look into the holder, such as a debugger in a shared PID namespace, must not reach the
// host through it. So all holders share one empty mount namespace. And they run from a copy of the program in a
// read-only file system: otherwise such a process could open the program as /proc/1/exe and replace its content.
func NewStarter(program, dir string) (*Starter, error) {
	s := &Starter{program: program, into: startsInto()}
	if err := s.enter(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("make a mount namespace for holders: %w", err), s.close())
	}
	var err error
	if s.sysctls, err = os.OpenFile("/proc/sys", unix.O_PATH|unix.O_DIRECTORY, 0); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *Starter) close() (err error) {
	for _, file := range []*os.File{s.code, s.mounts, s.sysctls} {
		if file != nil {
			err = errors.Join(err, file.Close())
		}
	}
	return err
}

// enter opens the copy of the program and the mount namespace. A thread that has left the mount namespace of this
// process cannot return to it, so it ends with its goroutine.
func (s *Starter) enter(dir string) error {
	content, err := os.ReadFile(s.program)
	if err != nil {
		return err
	}
	made := make(chan error)
	go onOtherThread(func() { made <- s.leaveMounts(dir, content) })
	return <-made
}

// onOtherThread calls f on a thread that ends with the calling goroutine. Go does not end the main thread, and
// /proc/self shows the namespaces of that one. So if this is the main thread, another goroutine calls f meanwhile.
func onOtherThread(f func()) {
	goruntime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	defer goruntime.UnlockOSThread()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		goruntime.LockOSThread()
		f()
	}()
	<-ended
}

func (s *Starter) leaveMounts(dir string, program []byte) (err error) {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if s.mounts, err = os.Open("/proc/thread-self/ns/mnt"); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if s.code, err = copyProgram(dir, program); err != nil {
		return fmt.Errorf("copy the program: %w", err)
	}
	const flags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	for _, do := range []func() error{
		func() error { return unix.Mount("holder", dir, "tmpfs", flags, "size=4k,mode=555") },
		func() error { return unix.Chdir(dir) },
		func() error { return unix.PivotRoot(".", ".") },
		func() error { return unix.Unmount(".", unix.MNT_DETACH) },
	} {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// copyProgram returns a copy of the program in a read-only file system. The file system is mounted nowhere, and lasts
// as long as the copy is open or runs.
func copyProgram(dir string, program []byte) (code *os.File, err error) {
	const flags = unix.MS_NOSUID | unix.MS_NODEV
	if err := unix.Mount("holder", dir, "tmpfs", flags, "size=64k,mode=555"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH)) }()
	path := filepath.Join(dir, "holder")
	syscall.ForkLock.RLock() // a child process with the open file would keep it busy
	err = os.WriteFile(path, program, 0o555)
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, err
	}
	if err := unix.Mount("", dir, "", flags|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return nil, err
	}
	return os.Open(path)
}

// Start starts a holder. The holder ends with this process unless it is released.
func (s *Starter) Start(c Config) (*Process, error) {
	joined, err := c.join()
	defer func() { closeAll(joined) }()
	if err != nil {
		return nil, err
	}
	in, err := openCgroups(c.Cgroups, s.into)
	defer in.close()
	if err != nil {
		return nil, fmt.Errorf("open cgroup: %w", err)
	}
	list, actions := steps(c.Namespaces, c.Hostname, c.Sysctls)
	moves, moved := in.steps(firstDescriptor + len(joined))
	list, actions = append(moves, list...), append(moved, actions...)
	// A holder outlives every context of this process.
	command := exec.CommandContext(context.Background(), codePath, append([]string{c.ID}, list...)...)
	command.Args[0] = s.program // for people, and for a later agent that looks for holders
	command.Env = []string{}
	command.ExtraFiles = slices.Concat([]*os.File{s.sysctls, s.mounts, s.code}, joined, in.files)
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if in.unified != nil {
		command.SysProcAttr.UseCgroupFD, command.SysProcAttr.CgroupFD = true, int(in.unified.Fd())
	}
	p, err := launch(command, c.Label, actions)
	if err != nil {
		return nil, fmt.Errorf("start holder: %w", err)
	}
	p.watch()
	return p, nil
}

// join opens the namespaces to join, in the order of the steps.
func (c Config) join() (files []*os.File, err error) {
	var network *os.File
	if c.Namespaces.Network {
		if network, err = os.Open(c.NetworkPath); err != nil {
			return nil, err
		}
	}
	if c.Namespaces.User {
		user, err := c.userNamespace(network)
		if err != nil {
			return []*os.File{network}, fmt.Errorf("open user namespace: %w", err)
		}
		files = append(files, user)
	}
	if network != nil {
		files = append(files, network)
	}
	return files, nil
}

// userNamespace opens the user namespace that owns the pod's network namespace, or makes one for a pod in the host's
// network.
func (c Config) userNamespace(network *os.File) (user *os.File, err error) {
	if network != nil {
		return sys.GetUsernsForNamespace(network.Fd())
	}
	err = sys.UnshareAfterEnterUserns(c.UIDs, c.GIDs, 0, func(pid int) error {
		user, err = os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
		return err
	})
	return user, err
}

// launch runs the program until it has made the holder and reported that all steps have succeeded.
func launch(command *exec.Cmd, context string, actions []string) (p *Process, err error) {
	input, release, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	output, report, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, input.Close(), release.Close())
	}
	defer output.Close()
	command.Stdin, command.Stdout = input, report
	err = startLabelled(command, context)
	err = errors.Join(err, input.Close(), report.Close())
	if err != nil {
		return nil, errors.Join(err, release.Close())
	}
	if p, err = await(output, actions); err == nil {
		p.input = release
	} else {
		err = errors.Join(err, release.Close()) // it ends the holder, if there is one
	}
	_ = command.Wait() // the program has reported why it failed
	return p, err
}

// startLabelled starts a program with an SELinux label. The label belongs to the thread.
func startLabelled(command *exec.Cmd, context string) error {
	if context == "" {
		return sysmon.Start(command)
	}
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	if err := selinux.SetExecLabel(context); err != nil {
		return fmt.Errorf("set SELinux label %q: %w", context, err)
	}
	return errors.Join(sysmon.Start(command), selinux.SetExecLabel(""))
}

// await reads the two reports of a program that has succeeded, in whichever order the processes wrote them: the process
// ID, and that all steps are done.
func await(output io.Reader, actions []string) (*Process, error) {
	var pid int
	for range 2 {
		value, err := readReport(output, actions)
		if err != nil {
			return nil, err
		}
		pid += value // the other report is 0
	}
	return open(pid)
}

func readReport(output io.Reader, actions []string) (int, error) {
	var report struct{ Value, Step int32 }
	if err := binary.Read(output, binary.NativeEndian, &report); err != nil {
		return 0, fmt.Errorf("it ended without a report: %w", err)
	}
	if report.Value >= 0 {
		return int(report.Value), nil
	}
	action := "unknown step"
	if int(report.Step) < len(actions) {
		action = actions[report.Step]
	}
	return 0, fmt.Errorf("%s: %w", action, syscall.Errno(-report.Value))
}
