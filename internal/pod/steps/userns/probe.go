package userns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Check says why pods whose directories are in dir, and their containers' roots
// in run, cannot have user namespaces of their own; nil if they can. The kernel
// has to allow such namespaces, and the file system to be mounted with other ids
// (mount_setattr(2), MOUNT_ATTR_IDMAP), or containers could not read their own
// mounts. Root of such a pod is another user, who has to get to the root.
func Check(dir, run string) error {
	if err := reachable(run); err != nil {
		return err
	}
	ns, err := openNamespace()
	if err != nil {
		return fmt.Errorf("the kernel allows no user namespace: %w (see /proc/sys/user/max_user_namespaces)", err)
	}
	defer ns.Close()
	tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("look at the file system of %s: %w", dir, err)
	}
	defer func() { _ = unix.Close(tree) }()
	err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH,
		&unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns.Fd())})
	if err != nil {
		return fmt.Errorf("the file system of %s cannot be mounted with other ids: %w", dir, err)
	}
	return nil
}

// reachable wants every user to be able to go to a directory.
func reachable(dir string) error {
	for {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if info.Mode()&0o001 == 0 {
			return fmt.Errorf("other users cannot go through %s (mode %#o): chmod o+x %s", dir, info.Mode().Perm(), dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
		dir = filepath.Dir(dir)
	}
}

// openNamespace makes a user namespace. One exists as long as a process is in
// it, or a file is open on it: the process is held at its first instruction, by
// ptrace(2), and ended as soon as the file is.
func openNamespace() (ns *os.File, err error) {
	runtime.LockOSThread() // a traced process ends with the thread that traces it
	defer runtime.UnlockOSThread()
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: Unit, Size: Unit}}
	p, err := os.StartProcess("/proc/self/exe", []string{"userns"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, Ptrace: true, Pdeathsig: unix.SIGKILL,
	}})
	if err != nil {
		return nil, err
	}
	defer func() {
		_, waitErr := p.Wait()
		err = errors.Join(err, waitErr)
	}()
	defer func() { err = errors.Join(err, p.Kill()) }()
	return os.Open("/proc/" + strconv.Itoa(p.Pid) + "/ns/user")
}
