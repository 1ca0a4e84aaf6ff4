package mount

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/base/roottest"
)

// The test binary is also the child.
func TestMain(m *testing.M) {
	if handled, code := Main(os.Args, os.Stdin, os.Stdout); handled {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

func TestParse(t *testing.T) {
	tests := []struct {
		name    string
		options []string
		want    Options
		err     string
	}{
		{name: "none"},
		{name: "a file system's own", options: []string{"nfsvers=4.1", "hard"},
			want: Options{Data: []string{"nfsvers=4.1", "hard"}}},
		{name: "flags", options: []string{"ro", "nosuid", "noatime"},
			want: Options{Flags: unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NOATIME}},
		{name: "several in one text", options: []string{"ro, data=ordered,nodev"},
			want: Options{Flags: unix.MS_RDONLY | unix.MS_NODEV, Data: []string{"data=ordered"}}},
		{name: "the last counts", options: []string{"ro", "rw", "noexec", "exec"}},
		{name: "one way to keep times", options: []string{"noatime", "strictatime"},
			want: Options{Flags: unix.MS_STRICTATIME}},
		{name: "of mount(8)",
			options: []string{"defaults", "_netdev", "nofail", "x-systemd.automount", "comment=by hand"}},
		{name: "what is no file system's", options: []string{"bind"},
			err: `mount option "bind": not an option of a file system`},
		{name: "propagation", options: []string{"rshared"}, err: "not an option of a file system"},
		{name: "more than an option", options: []string{"a\nb"}, err: "line break"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := Parse(test.options)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("got other options:\n%s", diff)
			}
			if test.err == "" && err != nil ||
				test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("got %v, want %q", err, test.err)
			}
		})
	}
}

func TestMount(t *testing.T) {
	roottest.Need(t, "mounting")
	dir := t.TempDir()
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	err := Runner{}.Mount(t.Context(),
		Call{Source: "test", Target: dir, Type: "tmpfs", Flags: unix.MS_NOEXEC, Data: "size=64k"})
	if err != nil {
		t.Fatal(err)
	}
	at, err := At(dir)
	if err != nil || at == nil {
		t.Fatalf("nothing is mounted: %v", err)
	}
	if got := at.FSType + " " + at.Source; got != "tmpfs test" || !strings.Contains(at.Options, "noexec") ||
		!strings.Contains(at.VFSOptions, "size=64k") {
		t.Errorf("mounted %s with %s and %s", got, at.Options, at.VFSOptions)
	}
	held, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if lost, err := (Remote{}).Unmount(t.Context(), dir); lost || !errors.Is(err, unix.EBUSY) {
		t.Errorf("unmounted in use: lost %v, %v", lost, err)
	}
	held.Close()
	for range 2 { // the second call finds no mount
		if lost, err := (Remote{}).Unmount(t.Context(), dir); lost || err != nil {
			t.Errorf("lost %v, %v", lost, err)
		}
	}
	if at, err := At(dir); at != nil || err != nil {
		t.Errorf("still mounted: %+v, %v", at, err)
	}
}

func TestMountFails(t *testing.T) {
	roottest.Need(t, "mounting")
	dir := t.TempDir()
	missing := filepath.Join(dir, "none")
	tests := []struct {
		name string
		call Call
		want error
		text string
	}{
		{"an unknown file system", Call{Source: "x", Target: dir, Type: "nosuchfs"}, unix.ENODEV, "mount x on " + dir},
		{"no directory", Call{Source: "x", Target: missing, Type: "tmpfs"}, unix.ENOENT, missing},
		{"a wrong option", Call{Source: "x", Target: dir, Type: "tmpfs", Data: "nosuch=1"}, unix.EINVAL,
			"invalid argument"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := Runner{}.Mount(t.Context(), test.call)
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
	if err := (Runner{Program: missing}).Unmount(t.Context(), dir, 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v without a program to run", err)
	}
}

// hanging is a child that does not answer. It writes its PID to the file.
func hanging(t *testing.T, pidFile string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "hang")
	if err := os.WriteFile(program,
		[]byte("#!/bin/sh\necho $$ >"+pidFile+".new\nmv "+pidFile+".new "+pidFile+"\nexec /bin/sleep 1000\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	return program
}

func TestChildIsKilled(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the pod is to stop")
	done := make(chan error, 1)
	go func() {
		done <- Runner{Program: hanging(t, pidFile)}.Mount(ctx, Call{Source: "server:/", Target: "/mnt", Type: "nfs"})
	}()
	pid := readPID(t, pidFile)
	cancel(why)
	err := <-done
	if !errors.Is(err, why) || !strings.Contains(err.Error(), "mount server:/ on /mnt: the kernel has not answered") {
		t.Errorf("got %v", err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d is there still: %v", pid, err)
	}
	if err := (Runner{}).Mount(ctx, Call{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v from a context that has ended", err)
	}
}

func readPID(t *testing.T, file string) int {
	t.Helper()
	var text []byte
	eventually.True(t, "the child begins", func() (begun bool) {
		var err error
		text, err = os.ReadFile(file)
		return err == nil
	})
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// Each way of unmounting takes at most Patience.
func TestUnmountIsBounded(t *testing.T) {
	roottest.Need(t, "mounting")
	dir := t.TempDir()
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := unix.Mount("test", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	u := Remote{Runner: Runner{Program: hanging(t, filepath.Join(t.TempDir(), "pid"))}, Patience: 50 * time.Millisecond}
	lost, err := u.Unmount(t.Context(), dir)
	if !lost || !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "no answer in 50ms") ||
		!strings.Contains(err.Error(), "still mounted") {
		t.Errorf("lost %v, %v", lost, err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
}
