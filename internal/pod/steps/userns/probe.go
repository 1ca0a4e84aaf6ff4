package userns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Check returns an error if pods cannot have user namespaces on this host. dir contains the pods' directories, and run
// the root file systems of their containers. The kernel must allow user namespaces. It must also be able to mount the
// file system with mapped ids (mount_setattr(2), MOUNT_ATTR_IDMAP); otherwise containers could not read their own
// mounts. Finally, root of such a pod is another user on the host, and must be able to reach the root file system.
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
		return fmt.Errorf("open the file system of %s: %w", dir, err)
	}
	defer func() { _ = unix.Close(tree) }()
	err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH,
		&unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns.Fd())})
	if err != nil {
		return fmt.Errorf("the file system of %s cannot be mounted with other ids: %w", dir, err)
	}
	return nil
}

// CheckProc returns an error if the kernel would refuse to mount /proc in a new user namespace. It refuses that while
// this process sees no proc file system as a whole: the new mount would show what another mount hides.
func CheckProc() error {
	all, err := mountinfo.GetMounts(nil)
	if err != nil {
		return fmt.Errorf("read the mounts of this process: %w", err)
	}
	if hidden := hiddenBy(all); hidden != "" {
		return fmt.Errorf("%s hides a part of /proc, as in a container that is not privileged", hidden)
	}
	return nil
}

// reachable returns an error unless every user can enter the directory.
func reachable(dir string) error {
	for {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if info.Mode()&0o001 == 0 {
			return fmt.Errorf("other users cannot enter %s (mode %#o): chmod o+x %s", dir, info.Mode().Perm(), dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
		dir = filepath.Dir(dir)
	}
}

// openNamespace makes a user namespace. A namespace exists while a process is in it or a file refers to it. ptrace(2)
// stops the process at its first instruction; it is killed once the file is open.
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
