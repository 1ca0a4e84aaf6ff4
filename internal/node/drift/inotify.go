package drift

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// inotify reports writes to the files of directories.
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

// add watches a directory and returns its watch descriptor. Only the watch of the parent directory reports that a
// cgroup was removed: the file system keeps the inode, so that IN_DELETE_SELF never comes.
func (i *inotify) add(dir string) (int32, error) {
	wd, err := unix.InotifyAddWatch(i.fd, dir, unix.IN_MODIFY|unix.IN_DELETE|unix.IN_ONLYDIR)
	if errors.Is(err, unix.ENOSPC) {
		return 0, fmt.Errorf("watch cgroup: no watch is free (see the sysctl fs.inotify.max_user_watches): %w", err)
	}
	return int32(wd), err
}

// remove ends a watch. It is harmless if the watch ended with its directory.
func (i *inotify) remove(wd int32) {
	_, _ = unix.InotifyRmWatch(i.fd, uint32(wd))
}

// write is one inotify event.
type write struct {
	watch int32
	file  string
	gone  bool // a directory of this name was removed
	lost  bool // events were dropped
}

// read waits for the next events.
func (i *inotify) read(buf []byte) ([]write, error) {
	n, err := i.file.Read(buf)
	if err != nil {
		return nil, err
	}
	return parse(buf[:n]), nil
}

// parse decodes inotify_event structures.
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
