package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxHolders is how many processes an error names.
const maxHolders = 5

// holders names the processes that use a mount: by their root or working
// directory, an open file, or a file mapped into memory.
func holders(proc string, mountID uint64) []string {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil
	}
	var found []string
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		dir := filepath.Join(proc, e.Name())
		use := uses(dir, mountID)
		if use == "" {
			continue
		}
		if len(found) == maxHolders {
			return append(found, "and others")
		}
		comm, _ := os.ReadFile(filepath.Join(dir, "comm"))
		found = append(found, fmt.Sprintf("process %s (%s) by its %s", e.Name(), strings.TrimSpace(string(comm)), use))
	}
	return found
}

func uses(dir string, mountID uint64) string {
	for _, link := range []struct{ name, use string }{{"root", "root directory"}, {"cwd", "working directory"}, {"exe", "program"}} {
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

// onMount says whether what a link of /proc leads to is on that mount. It asks
// no remote file system.
func onMount(link string, mountID uint64) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, link, unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, unix.STATX_MNT_ID, &st)
	return err == nil && st.Mask&unix.STATX_MNT_ID != 0 && st.Mnt_id == mountID
}
