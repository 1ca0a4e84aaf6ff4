package roottest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/eventually"
)

// Need skips the test unless it runs as root. what names the reason in the present participle: "mounting".
func Need(t testing.TB, what string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("%s needs root: run make test as root", what)
	}
}

// Dir makes a directory whose path is short enough for sockets, and skips the test unless it runs as root. At the
// test's end, it calls sweep and removes the directory. sweep reports what still uses the directory, and ends it.
func Dir(t testing.TB, what string, sweep func(dir string)) string {
	t.Helper()
	Need(t, what)
	dir, err := os.MkdirTemp("/tmp", "bt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		sweep(dir)
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// OwnNetwork runs the test again in a process with its own network namespace, and returns true there. It skips the test
// unless it runs as root.
func OwnNetwork(t *testing.T) bool {
	t.Helper()
	Need(t, "making a network namespace")
	return again(t, syscall.CLONE_NEWNET)
}

// OwnProcess runs the test again in a process of its own, and returns true there. It skips the test unless it runs as
// root.
func OwnProcess(t *testing.T) bool {
	t.Helper()
	Need(t, "changing the test's process")
	return again(t, 0)
}

// again runs the test in another process with new namespaces (flags of clone(2)), and returns true there.
func again(t *testing.T, namespaces uintptr) bool {
	t.Helper()
	const inside = "BERTH_TEST_OWN_PROCESS"
	if os.Getenv(inside) != "" {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
	return false
}

// Disk mounts an ext4 file system of 256 MiB, and skips the test where that is impossible. powerCut ends it as the loss
// of power does, without writing anything that no program has synced, and mounts it again.
func Disk(t testing.TB) (dir string, powerCut func()) {
	t.Helper()
	Need(t, "mounting")
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("no loop devices here")
	}
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		t.Skip("mkfs.ext4 is not installed")
	}
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(context.Background(), name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %q: %v: %s", name, args, err, out)
		}
	}
	image := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 256<<20); err != nil {
		t.Fatal(err)
	}
	run("mkfs.ext4", "-q", image)
	dir = t.TempDir()
	mount := func() { run("mount", "-o", "loop", image, dir) }
	mount()
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir, func() {
		t.Helper()
		const shutdown, withoutJournal = 0x8004587d, 2 // EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH
		d, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		err = unix.IoctlSetPointerInt(int(d.Fd()), shutdown, withoutJournal)
		d.Close()
		if err != nil {
			t.Fatalf("end the file system: %v", err)
		}
		run("umount", dir)
		// A container that another test makes at this moment has a copy of all mounts. While it has, the next mount
		// would be the same file system, which is dead.
		eventually.Nothing(t, func() string {
			attached, err := exec.CommandContext(t.Context(), "losetup", "-j", image).Output()
			if err != nil {
				t.Fatalf("losetup -j %s: %v", image, err)
			}
			if len(attached) > 0 {
				return "the file system is still mounted somewhere: " + string(attached)
			}
			return ""
		})
		mount()
	}
}
