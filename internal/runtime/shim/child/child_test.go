package child

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/containerd/go-runc"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/pidfd"
)

// start starts a process that exits with the code 7 when its input ends.
func start(t *testing.T) (command *exec.Cmd, end func()) {
	t.Helper()
	command = exec.CommandContext(t.Context(), "sh", "-c", "read x; exit 7")
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	return command, func() { _ = input.Close() }
}

func open(t *testing.T, pid int) int {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// zombie waits until a child has ended, and leaves its exit to others.
func zombie(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
}

func TestWatchKnowsTheCodeOfAZombie(t *testing.T) {
	command, end := start(t)
	pid := command.Process.Pid
	exits, err := Watch(pid, open(t, pid))
	if err != nil {
		t.Fatal(err)
	}
	select {
	case exit := <-exits:
		t.Fatalf("exit of a process that runs: %+v", exit)
	default:
	}
	end()
	if exit := <-exits; exit.Status != 7 || exit.Pid != pid {
		t.Errorf("exit %+v of process %d, want the code 7", exit, pid)
	}
	_ = command.Wait()
}

// The parent has waited for the process. The kernel knows the code since version 6.15.
func TestWatchOfAReapedProcess(t *testing.T) {
	command, end := start(t)
	fd := open(t, command.Process.Pid)
	end()
	_ = command.Wait()
	exits, err := Watch(command.Process.Pid, fd)
	if err != nil {
		t.Fatal(err)
	}
	want := UnknownStatus
	if _, known, _ := exitInfo(fd); known {
		want = 7
	}
	if exit := <-exits; exit.Status != want {
		t.Errorf("exit %+v, want the code %d", exit, want)
	}
}

func TestPidfdsOfOthersAreFound(t *testing.T) {
	command, end := start(t)
	pid := command.Process.Pid
	stat, err := ReadStat(pid)
	if err != nil {
		t.Fatal(err)
	}
	if stat.Parent != os.Getpid() {
		t.Errorf("parent %d, want %d", stat.Parent, os.Getpid())
	}
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd, other := open(t, pid), open(t, os.Getpid())
	check := func(name string, got, want bool) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	check("pidfd of the process", Is(fd, pid, stat.Started), true)
	check("pidfd of a later process with its number", Is(fd, pid, stat.Started-1), false)
	check("pidfd of another process", Is(other, pid, stat.Started), false)
	check("another file", Is(int(file.Fd()), pid, stat.Started), false)
	check("closed descriptor", Is(1<<20, pid, stat.Started), false)
	if opened, ok := Open(pid, stat.Started-1); ok {
		_ = unix.Close(opened)
		t.Error("opened a later process with the number")
	}
	end()
	zombie(t, pid)
	check("pidfd of a zombie", Is(fd, pid, stat.Started), true)
	_ = command.Wait()
	check("pidfd of a process that is gone", Is(fd, pid, stat.Started), true)
	check("a process that is gone has ended", pidfd.Ended(fd), true)
	check("this process has ended", pidfd.Ended(other), false)
}

// A child that ends before its starter knows its number is still found. Its exit is dropped when all starts are over
// that began before it: a later child may have its number.
func TestReaperKeepsEarlyExits(t *testing.T) {
	r := NewReaper("")
	exitEarly := func() int {
		command, end := start(t)
		end()
		zombie(t, command.Process.Pid)
		r.reap()
		return command.Process.Pid
	}
	finish := r.Begin()
	followed, stale := exitEarly(), exitEarly()
	exits, pidfd := r.Follow(followed)
	if exit := <-exits; pidfd != -1 || exit.Status != 7 {
		t.Errorf("exit %+v with the descriptor %d, want the code 7 and -1", exit, pidfd)
	}
	later := r.Begin()
	if _, ok := r.early[stale]; !ok {
		t.Error("the exit is lost before the start is over")
	}
	finish()
	if len(r.early) > 0 {
		t.Errorf("exits that are older than the only start in progress: %v", r.early)
	}
	kept := exitEarly()
	r.Begin()()
	if exit, ok := r.early[kept]; !ok || exit.Status != 7 {
		t.Errorf("early exits %v, want the exit of %d", r.early, kept)
	}
	later()
	if len(r.early) > 0 {
		t.Errorf("exits after all starts: %v", r.early)
	}
	exitEarly()
	if len(r.early) > 0 {
		t.Errorf("exits while nothing starts: %v", r.early)
	}
}

// While a library starts children, the reaper leaves those that it does not know to the library. It still takes the
// exits of those that it follows, also if it follows them after they have ended. Afterwards it takes all.
func TestReaperLeavesChildrenToALibrary(t *testing.T) {
	r := NewReaper("")
	leave := r.Leave()
	begun := r.Begin()
	library, endLibrary := start(t)
	unknown, _ := start(t)
	late, endLate := start(t)
	endLibrary()
	endLate()
	zombie(t, library.Process.Pid)
	zombie(t, late.Process.Pid)
	r.reap()
	if err := library.Wait(); library.ProcessState.ExitCode() != 7 {
		t.Errorf("the library waits for its child: %v", err)
	}
	exits, pidfd := r.Follow(late.Process.Pid)
	if pidfd >= 0 {
		defer func() { _ = unix.Close(pidfd) }()
	}
	<-r.more // asked for by Follow
	r.reap()
	if exit := <-exits; exit.Status != 7 {
		t.Errorf("exit of a child that ended before it was followed: %+v", exit)
	}
	begun()
	if err := unknown.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	zombie(t, unknown.Process.Pid)
	leave()
	leave() // does nothing more
	<-r.more
	r.reap()
	if err := unknown.Wait(); !errors.Is(err, unix.ECHILD) {
		t.Errorf("an unknown child after the library: %v, want that the reaper has its exit", err)
	}
}

// A command has no variable that is for this process alone, unless it has it for itself.
func TestReaperHidesAVariable(t *testing.T) {
	const variable = "BERTH_TEST=1"
	r := NewReaper(variable)
	for _, test := range []struct {
		env  []string
		want string
	}{
		{[]string{"A=b", variable}, ""},
		{[]string{"A=b", variable, "C=d", variable}, "1"},
		{[]string{"A=b"}, ""},
	} {
		var out bytes.Buffer
		command := exec.CommandContext(t.Context(), "sh", "-c", "echo $A$BERTH_TEST")
		command.Env, command.Stdout = test.env, &out
		exits, err := r.Start(command)
		if err != nil {
			t.Fatal(err)
		}
		zombie(t, command.Process.Pid)
		r.reap()
		if _, err := r.Wait(command, exits); err != nil || out.String() != "b"+test.want+"\n" {
			t.Errorf("%v: printed %q, %v", test.env, out.String(), err)
		}
	}
}

func TestReaperIsAMonitorOfRunc(t *testing.T) {
	r := NewReaper("")
	for name, begin := range map[string]func(*exec.Cmd) (chan runc.Exit, error){
		"Start": r.Start, "StartLocked": r.StartLocked,
	} {
		command := exec.CommandContext(t.Context(), "sh", "-c", "kill -9 $$")
		exits, err := begin(command)
		if err != nil {
			t.Fatal(err)
		}
		zombie(t, command.Process.Pid)
		r.reap()
		const killed = 137
		if status, err := r.Wait(command, exits); err != nil || status != killed {
			t.Errorf("%s: exit code %d, %v, want %d", name, status, err, killed)
		}
	}
	if _, err := r.Start(exec.CommandContext(t.Context(), "/no/such/program")); err == nil || len(r.starting) > 0 {
		t.Errorf("start of no program: %v, starts in progress %v", err, r.starting)
	}
}
