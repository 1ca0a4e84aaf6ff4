package volume_test

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// holdEnv makes the test binary a process that holds a mount until its standard input ends. The value says how: "mmap
// PATH" or "thread PATH".
const holdEnv = "BERTH_TEST_HOLD"

func hold(how string) error {
	verb, path, _ := strings.Cut(how, " ")
	ready := make(chan error)
	var work func()
	work = func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() { // the main thread's directory is the process's
			go work()
			select {}
		}
		switch verb {
		case "mmap":
			f, err := os.Open(filepath.Join(path, "file"))
			if err == nil {
				_, err = unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE)
				err = errors.Join(err, f.Close())
			}
			ready <- err
		case "thread":
			ready <- errors.Join(unix.Unshare(unix.CLONE_FS), unix.Chdir(path))
		case "chroot":
			ready <- unix.Chroot(path)
		default:
			ready <- nil
		}
		select {}
	}
	go work()
	if err := <-ready; err != nil {
		return err
	}
	if _, err := os.Stdout.WriteString("holding\n"); err != nil {
		return err
	}
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
	return nil
}

// Another process holds a volume in each possible way and lets go of it.
func TestUnmountNamesEveryKindOfHolder(t *testing.T) {
	tests := map[string]struct {
		edit func(c *exec.Cmd, path string) error
		want string
	}{
		"working directory": {func(c *exec.Cmd, path string) error {
			c.Dir = path
			return nil
		}, "by its working directory"},
		"mapped file": {func(c *exec.Cmd, path string) error {
			c.Env = append(os.Environ(), holdEnv+"=mmap "+path)
			return nil
		}, "by its mapped file "},
		"one thread": {func(c *exec.Cmd, path string) error {
			c.Env = append(os.Environ(), holdEnv+"=thread "+path)
			return nil
		}, "by its working directory in thread "},
		"root directory": {func(c *exec.Cmd, path string) error {
			c.Env = append(os.Environ(), holdEnv+"=chroot "+path)
			return nil
		}, "by its root directory"},
		"an open file of another mount namespace": {func(c *exec.Cmd, path string) error {
			f, err := os.Open(filepath.Join(path, "file"))
			c.ExtraFiles = []*os.File{f}
			c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
			return err
		}, "by its open file "},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			v, _, _ := node(t)
			r := run(emptyDir("memory", "Memory"))
			if err := v.Step().Setup(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			path, _ := v.Path("u1", "memory")
			write(t, filepath.Join(path, "file"), strings.Repeat("x", 4096))
			holder := exec.Command(os.Args[0]) //nolint:gosec // this test
			holder.Env = append(os.Environ(), holdEnv+"=still")
			if err := test.edit(holder, path); err != nil {
				t.Fatal(err)
			}
			stop, err := holder.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := holder.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := holder.Start(); err != nil {
				t.Fatal(err)
			}
			for _, f := range holder.ExtraFiles {
				f.Close()
			}
			if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
				t.Errorf("%s, %v", line, err)
			}
			err = v.Step().Teardown(t.Context(), r)
			if !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if err := errors.Join(stop.Close(), holder.Wait()); err != nil {
				t.Error(err)
			}
			if err := v.Step().Teardown(t.Context(), r); err != nil {
				t.Errorf("removal after the process has ended: %v", err)
			}
		})
	}
}
