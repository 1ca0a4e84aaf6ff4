package holder

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/sysctl"
)

// startCgroup is the cgroup in which a holder starts.
//
// To move a process with its ID, the kernel waits for a grace period of RCU, some 12 ms. It does not wait for a process
// that moves only its own thread, with the file tasks of version 1, or that is made in its cgroup, on version 2.
type startCgroup struct {
	files   []*os.File // the program moves itself with these
	unified *os.File   // the directory of version 2 in which clone(2) makes the program; nil: there is none
}

// startsInto reports whether the kernel can make a process in another cgroup of version 2: since Linux 5.7.
func startsInto() bool {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return false
	}
	return !sysctl.ParseKernel(unix.ByteSliceToString(name.Release[:])).Before(sysctl.Kernel{5, 7})
}

// openCgroups opens the cgroup of a holder. Also after an error, the caller closes what it returns.
func openCgroups(dirs []string, into bool) (in startCgroup, err error) {
	dirs = slices.Clone(dirs)
	slices.Sort(dirs) // controllers that share a hierarchy share a directory
	for _, dir := range slices.Compact(dirs) {
		file, err := os.OpenFile(filepath.Join(dir, "tasks"), os.O_WRONLY, 0)
		switch {
		case err == nil:
			in.files = append(in.files, file)
			continue
		case !errors.Is(err, fs.ErrNotExist):
			return in, err
		case into:
			in.unified, err = os.Open(dir)
		default:
			file, err = os.OpenFile(filepath.Join(dir, "cgroup.procs"), os.O_WRONLY, 0)
			in.files = append(in.files, file)
		}
		if err != nil {
			return in, err
		}
	}
	return in, nil
}

// steps returns the program's steps that move it, and the action of each. Its descriptors begin with first.
func (in startCgroup) steps(first int) (list, actions []string) {
	for i, file := range in.files {
		list, actions = append(list, "c"+strconv.Itoa(first+i)), append(actions, "join "+filepath.Dir(file.Name()))
	}
	return list, actions
}

func (in startCgroup) close() { closeAll(append(in.files, in.unified)) }

func closeAll(files []*os.File) {
	for _, file := range files {
		_ = file.Close() // a nil file has nothing to close
	}
}
