package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxHolders is how many processes an error lists.
const maxHolders = 5

// holders describes the processes that use a mount: by their root or working directory, an open file, or a file mapped
// into memory. A mount's id is the same in all mount namespaces, so processes in others are found too. If there is
// none, it looks at the threads of each process and at loop devices.
func holders(proc, sys string, mountID uint64, mountPoint string) []string {
	pids := numbers(proc)
	var found []string
	for _, pid := range pids {
		dir := filepath.Join(proc, pid)
		if use := uses(dir, mountID); use != "" {
			found = append(found, describe(dir, pid, use))
		}
	}
	if len(found) > 0 {
		return found
	}
	for _, pid := range pids {
		for _, thread := range numbers(filepath.Join(proc, pid, "task")) {
			dir := filepath.Join(proc, pid, "task", thread)
			if use := uses(dir, mountID); use != "" {
				found = append(found, describe(dir, pid, use+" in thread "+thread))
			}
		}
	}
	return append(found, loopDevices(sys, mountPoint)...)
}

func numbers(dir string) []string {
	entries, _ := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil {
			names = append(names, e.Name())
		}
	}
	return names
}

func describe(dir, pid, use string) string {
	comm, _ := os.ReadFile(filepath.Join(dir, "comm"))
	return fmt.Sprintf("process %s (%s) by its %s", pid, strings.TrimSpace(string(comm)), use)
}

// loopDevices describes the loop devices whose backing file is on the mount.
func loopDevices(sys, mountPoint string) []string {
	files, _ := filepath.Glob(filepath.Join(sys, "block/loop*/loop/backing_file"))
	var found []string
	for _, name := range files {
		text, err := os.ReadFile(name)
		if file := strings.TrimSpace(string(text)); err == nil && within(file, mountPoint) {
			found = append(found,
				fmt.Sprintf("/dev/%s, whose file is %s", filepath.Base(filepath.Dir(filepath.Dir(name))), file))
		}
	}
	return found
}

func uses(dir string, mountID uint64) string {
	for _, link := range []struct{ name, use string }{{"root", "root directory"}, {"cwd", "working directory"},
		{"exe", "program"}} {
		if onMount(filepath.Join(dir, link.name), mountID) {
			return link.use
		}
	}
	for _, list := range []struct{ name, use string }{{"fd", "open file"}, {"map_files", "mapped file"}} {
		entries, _ := os.ReadDir(filepath.Join(dir, list.name))
		for _, e := range entries {
			link := filepath.Join(dir, list.name, e.Name())
			if onMount(link, mountID) {
				target, _ := os.Readlink(link)
				return list.use + " " + target
			}
		}
	}
	return ""
}

// onMount reports whether the target of a link in /proc is on that mount. It makes no request to a remote file server.
func onMount(link string, mountID uint64) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, link, unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, unix.STATX_MNT_ID, &st)
	return err == nil && st.Mask&unix.STATX_MNT_ID != 0 && st.Mnt_id == mountID
}
