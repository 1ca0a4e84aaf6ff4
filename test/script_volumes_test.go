package test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/moby/sys/mountinfo"
	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-run/berth/internal/base/roottest"
)

// loop makes a block device from a file and sets the variable of this name to its path. If the device is in use when
// the script ends, the kernel removes it after its last use.
func loop(ts *testscript.TestScript, args []string) {
	file := filepath.Join(rootOf(ts), args[0]+".img")
	ts.Check(os.WriteFile(file, nil, 0o600))
	ts.Check(os.Truncate(file, 16<<20))
	out, err := exec.Command("losetup", "--find", "--show", file).Output()
	ts.Check(err)
	device := strings.TrimSpace(string(out))
	ts.Defer(func() { _ = exec.Command("losetup", "--detach", device).Run() })
	ts.Setenv(args[0], device)
}

// diskRoot gives the root directory a file system of its own: ext4, or one of a type with project quotas. The end of
// the script unmounts it.
func diskRoot(ts *testscript.TestScript, args []string) {
	root := rootOf(ts)
	before := root + ".before"
	ts.Check(os.Rename(root, before))
	ts.Check(os.Mkdir(root, 0o711))
	mkfs, options := []string{"mkfs.ext4", "-q", "-m", "0"}, "loop"
	if len(args) > 1 {
		options = "loop,prjquota"
		switch args[1] {
		case "ext4":
			mkfs = append(mkfs, "-O", "quota,project", "-E", "quotatype=prjquota")
		case "xfs":
			mkfs = []string{"mkfs.xfs", "-q"}
		default:
			ts.Fatalf("disk-root: unknown type %s", args[1])
		}
	}
	mountDisk(ts, root, args[0], options, mkfs...)
	ts.Check(os.CopyFS(root, os.DirFS(before)))
	ts.Check(os.RemoveAll(before))
}

// mountDisk makes a file system of this size and mounts it.
func mountDisk(ts *testscript.TestScript, dir, size, options string, mkfs ...string) {
	bytes, err := resource.ParseQuantity(size)
	ts.Check(err)
	image := rootOf(ts) + ".img"
	ts.Check(os.WriteFile(image, nil, 0o600))
	defer func() { ts.Check(os.Remove(image)) }() // the mount keeps its blocks
	ts.Check(os.Truncate(image, bytes.Value()))
	ts.Check(ts.Exec(mkfs[0], append(mkfs[1:], image)...))
	ts.Check(ts.Exec("mount", "-o", options, image, dir))
}

// hang mounts a file system on a directory that never answers: its server does not read requests.
func hang(ts *testscript.TestScript, args []string) {
	dirs, err := filepath.Glob(ts.MkAbs(args[0]))
	ts.Check(err)
	if len(dirs) != 1 {
		ts.Fatalf("hang: %d directories match %s", len(dirs), args[0])
	}
	release, err := roottest.Hang(dirs[0])
	ts.Check(err)
	hanging := ts.Value(daemonKey{}).(*daemon).hanging
	hanging[dirs[0]] = sync.OnceValue(release)
	ts.Defer(func() { ts.Check(hanging[dirs[0]]()) })
}

// unhang unmounts the file systems of hang on directories that match a pattern. Calls that wait for them fail.
func unhang(ts *testscript.TestScript, args []string) {
	found := false
	for dir, release := range ts.Value(daemonKey{}).(*daemon).hanging {
		if matches, err := filepath.Match(ts.MkAbs(args[0]), dir); err != nil || matches {
			ts.Check(errors.Join(err, release()))
			found = true
		}
	}
	if !found {
		ts.Fatalf("unhang: nothing hangs on %s", args[0])
	}
}

// ownMounts gives agents that start from now on a mount namespace of their own, where the root is a shared mount, as
// systemd makes it.
func ownMounts(ts *testscript.TestScript, _ []string) {
	ts.Value(daemonKey{}).(*daemon).ownMounts = true
}

// inOwnMounts calls start in a new mount namespace. The namespace has the mounts of the machine but those of hang: a
// container that looks at all mounts of the machine would wait for the file systems of other scripts too. Later mounts
// of the machine do not appear in it.
func inOwnMounts(start func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with this goroutine, and nothing else runs in its namespace
		if unix.Gettid() == unix.Getpid() {
			// The main thread does not end, and /proc/mounts would show its namespace to all. It is locked meanwhile.
			err := inOwnMounts(start)
			runtime.UnlockOSThread()
			done <- err
			return
		}
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return fmt.Errorf("make a mount namespace: %w", err)
			}
			if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unmountHanging(),
				unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")); err != nil {
				return fmt.Errorf("prepare a mount namespace: %w", err)
			}
			return start()
		}()
	}()
	return <-done
}

// unmountHanging removes the mounts of hang from the mount namespace of this thread.
func unmountHanging() error {
	file, err := os.Open("/proc/thread-self/mountinfo")
	if err != nil {
		return err
	}
	defer file.Close()
	hanging, err := mountinfo.GetMountsFromReader(file, func(m *mountinfo.Info) (skip, stop bool) {
		return m.FSType != "fuse" || m.Source != roottest.HangSource, false
	})
	for _, m := range hanging {
		err = errors.Join(err, unix.Unmount(m.Mountpoint, unix.MNT_DETACH))
	}
	return err
}
