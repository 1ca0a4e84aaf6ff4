package drift

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// inotify tells of writes to the files of directories.
type inotify struct {
	file *os.File
	fd   int
}

func openInotify() (*inotify, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch cgroups: %w (see the sysctl fs.inotify.max_user_instances)", err)
	}
	return &inotify{file: os.NewFile(uintptr(fd), "inotify"), fd: fd}, nil
}

// add watches a directory and returns the number that its writes are told with.
// A cgroup that is removed is told of by its parent only: the file system keeps
// the inode, so that IN_DELETE_SELF does not come.
func (i *inotify) add(dir string) (int32, error) {
	wd, err := unix.InotifyAddWatch(i.fd, dir, unix.IN_MODIFY|unix.IN_DELETE|unix.IN_ONLYDIR)
	if errors.Is(err, unix.ENOSPC) {
		return 0, fmt.Errorf("watch cgroup: no watch is free (see the sysctl fs.inotify.max_user_watches): %w", err)
	}
	return int32(wd), err
}

// remove ends a watch. One that has ended with its directory is no error.
func (i *inotify) remove(wd int32) {
	_, _ = unix.InotifyRmWatch(i.fd, uint32(wd))
}

// write is one thing that inotify tells.
type write struct {
	watch int32
	file  string
	gone  bool // it was a directory, and is removed
	lost  bool // events were dropped
}

// read waits for the next writes.
func (i *inotify) read(buf []byte) ([]write, error) {
	n, err := i.file.Read(buf)
	if err != nil {
		return nil, err
	}
	return parse(buf[:n]), nil
}

// parse takes inotify_event structures apart.
func parse(buf []byte) []write {
	var all []write
	for len(buf) >= unix.SizeofInotifyEvent {
		length := int(binary.NativeEndian.Uint32(buf[12:]))
		end := unix.SizeofInotifyEvent + length
		if end > len(buf) {
			break
		}
		name, _, _ := bytes.Cut(buf[unix.SizeofInotifyEvent:end], []byte{0})
		mask := binary.NativeEndian.Uint32(buf[4:])
		all = append(all, write{
			watch: int32(binary.NativeEndian.Uint32(buf)), file: string(name),
			gone: mask&unix.IN_DELETE != 0, lost: mask&unix.IN_Q_OVERFLOW != 0,
		})
		buf = buf[end:]
	}
	return all
}
