package holder

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/selinux/go-selinux"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/boot"
	"github.com/berth-run/berth/internal/base/eventually"
)

const timeout = 20 * time.Second

// starter compiles the program and returns a starter for it.
func starter(t *testing.T) *Starter {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "holder")
	out, err := exec.Command("gcc", "-Os", "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-fno-stack-protector",
		"-fno-asynchronous-unwind-tables", "-static", "-nostdlib", "-o", program,
		"../../holder/holder.c").CombinedOutput()
	if err != nil {
		t.Fatalf("compile holder: %v\n%s", err, out)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := NewStarter(program, empty)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run starts a holder that ends with the test.
func run(t *testing.T, s *Starter, c Config) *Process {
	t.Helper()
	p, err := s.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Kill(); awaitEnd(t, p) })
	return p
}

func awaitEnd(t *testing.T, p *Process) {
	t.Helper()
	select {
	case <-p.Ended():
	case <-time.After(timeout):
		t.Fatal("the holder does not end")
	}
}

func namespace(t *testing.T, process any, name string) string {
	t.Helper()
	link, err := os.Readlink(fmt.Sprintf("/proc/%v/ns/%s", process, name))
	if err != nil {
		t.Fatal(err)
	}
	return link
}

func status(t *testing.T, p *Process, field string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("the status of a process has no %s", field)
	return ""
}

// A holder has its own namespaces, no privileges, no files of the host and a filter of system calls.
func TestHolderIsConfined(t *testing.T) {
	s := starter(t)
	p := run(t, s, Config{ID: "test", Namespaces: Namespaces{IPC: true, UTS: true, PID: true}, Hostname: "confined"})
	if err := p.Release(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ipc", "uts", "pid", "mnt"} {
		if namespace(t, p.PID, name) == namespace(t, "self", name) {
			t.Errorf("the holder has the %s namespace of this process", name)
		}
	}
	if namespace(t, p.PID, "net") != namespace(t, "self", "net") {
		t.Error("the holder has left the network namespace")
	}
	if left, err := os.ReadDir(fmt.Sprintf("/proc/%d/root", p.PID)); err != nil || len(left) > 0 {
		t.Errorf("the holder sees %v (%v)", left, err)
	}
	eventually.True(t, "a seccomp filter of the holder", func() bool { return status(t, p, "Seccomp") == "2" })
	for field, want := range map[string]string{
		"CapEff": "0000000000000000", "CapPrm": "0000000000000000", "NoNewPrivs": "1", "Groups": "",
		"Uid": "65535\t65535\t65535\t65535", "Gid": "65535\t65535\t65535\t65535",
	} {
		if got := status(t, p, field); got != want {
			t.Errorf("%s of the holder is %q, want %q", field, got, want)
		}
	}
}

// The holder of a pod with users of its own in the host's network makes the user namespace, and root there sets the
// pod's sysctls.
func TestHolderJoinsUserNamespace(t *testing.T) {
	s := starter(t)
	p := run(t, s, Config{ID: "test", Namespaces: Namespaces{IPC: true, PID: true, User: true},
		UIDs: "0:200000:65536", GIDs: "0:200000:65536", Sysctls: []Sysctl{{"kernel/shm_rmid_forced", "1"}}})
	if namespace(t, p.PID, "user") == namespace(t, "self", "user") {
		t.Error("the holder has the user namespace of this process")
	}
	if got := status(t, p, "Uid"); !strings.HasPrefix(got, "265535\t") {
		t.Errorf("the holder has user %q, want 265535", got)
	}
}

// A process that may look into the holder cannot replace the program, also not after the last holder has ended.
func TestNobodyCanWriteTheProgram(t *testing.T) {
	s := starter(t)
	p := run(t, s, Config{ID: "test", Namespaces: Namespaces{PID: true}})
	program, err := os.OpenFile(fmt.Sprintf("/proc/%d/exe", p.PID), unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	p.Kill()
	awaitEnd(t, p)
	path := fmt.Sprintf("/proc/self/fd/%d", program.Fd())
	if file, err := os.OpenFile(path, os.O_WRONLY, 0); !errors.Is(err, unix.EROFS) {
		t.Errorf("open the program of a holder for writing: %v, want %v", err, unix.EROFS)
		_ = file.Close()
	}
	if err := os.Chmod(path, 0o777); !errors.Is(err, unix.EROFS) {
		t.Errorf("change the mode of a holder's program: %v, want %v", err, unix.EROFS)
	}
}

// The filter of system calls lets a holder wait on after it was stopped, as the freezer of a cgroup does it.
func TestHolderContinuesAfterStop(t *testing.T) {
	s := starter(t)
	p := run(t, s, Config{ID: "test", Namespaces: Namespaces{PID: true}})
	if err := p.Release(); err != nil {
		t.Fatal(err)
	}
	state := func(want string) {
		t.Helper()
		eventually.True(t, "state "+want, func() bool { return strings.HasPrefix(status(t, p, "State"), want) })
	}
	eventually.True(t, "a seccomp filter of the holder", func() bool { return status(t, p, "Seccomp") == "2" })
	for _, step := range []struct {
		signal unix.Signal
		state  string
	}{{unix.SIGSTOP, "T"}, {unix.SIGCONT, "S"}, {unix.SIGTERM, "S"}} {
		if err := unix.Kill(p.PID, step.signal); err != nil {
			t.Fatal(err)
		}
		state(step.state)
	}
}

// The holder does not start if SELinux does not accept its label.
func TestStartReportsLabel(t *testing.T) {
	s := starter(t)
	if selinux.GetEnabled() {
		t.Skip("needs a kernel without SELinux")
	}
	_, err := s.Start(Config{ID: "test", Label: "system_u:system_r:container_t:s0:c1,c2"})
	if err == nil || !strings.Contains(err.Error(), `set SELinux label "system_u:system_r:container_t:s0:c1,c2"`) {
		t.Errorf("start a holder with a label: %v", err)
	}
	run(t, s, Config{ID: "test"}) // the thread has kept no label
}

// The main thread of this process keeps its namespaces: Go never ends it, and /proc/self shows them.
func TestOnOtherThreadSparesTheMainThread(t *testing.T) {
	for range 100 {
		ended, thread := make(chan struct{}), 0
		go func() {
			defer close(ended)
			onOtherThread(func() { thread = unix.Gettid() })
		}()
		<-ended
		if thread == 0 || thread == os.Getpid() {
			t.Fatalf("called on thread %d of process %d", thread, os.Getpid())
		}
	}
}

// A holder that its starter has not released ends with its starter: no record of it exists.
func TestHolderEndsUnlessReleased(t *testing.T) {
	s := starter(t)
	p := run(t, s, Config{ID: "test", Namespaces: Namespaces{PID: true}})
	if err := p.input.Close(); err != nil { // as the kernel does when the starter ends
		t.Fatal(err)
	}
	awaitEnd(t, p)
}

// A later process finds a holder by its identity, and takes no other process for it.
func TestOpenFindsOnlyTheSameProcess(t *testing.T) {
	s := starter(t)
	p := run(t, s, Config{ID: "test", Namespaces: Namespaces{PID: true}})
	if err := p.Release(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(p.Identity)
	if err != nil {
		t.Fatal(err)
	}
	for name, id := range map[string]Identity{
		"other start": {p.PID, p.Start + 1, p.Boot},
		"other boot":  {p.PID, p.Start, "before"},
		"no process":  {1 << 22, p.Start, p.Boot},
	} {
		if _, err := Open(id); !errdefs.IsNotFound(err) {
			t.Errorf("%s: %v, want not found", name, err)
		}
	}
	again.Kill()
	awaitEnd(t, again)
	awaitEnd(t, p)
}

// A thread may have got the ID of a holder that has ended.
func TestOpenOfAThreadFindsNoHolder(t *testing.T) {
	current, err := boot.ID()
	if err != nil {
		t.Fatal(err)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil || len(threads) < 2 {
		t.Fatalf("threads %v, %v: want several", threads, err)
	}
	thread, err := strconv.Atoi(threads[len(threads)-1].Name())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Identity{PID: thread, Boot: current}); !errdefs.IsNotFound(err) {
		t.Errorf("got %v, want not found", err)
	}
}

// The error of a step names the failed action and its cause.
func TestStartNamesTheStepThatFailed(t *testing.T) {
	s := starter(t)
	_, err := s.Start(Config{ID: "test", Namespaces: Namespaces{IPC: true},
		Sysctls: []Sysctl{{"kernel/berth_unknown", "1"}}})
	if err == nil || !errors.Is(err, unix.ENOENT) || !strings.Contains(err.Error(), "kernel/berth_unknown") {
		t.Errorf("error of an unknown sysctl: %v", err)
	}
}
