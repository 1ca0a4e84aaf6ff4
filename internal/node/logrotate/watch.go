package logrotate

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// watcher tells of the first write to each watched file, by inotify. A nil one
// watches nothing.
type watcher struct {
	fd   int
	file *os.File // of fd
	out  chan []int32
	end  chan struct{}
	done chan struct{}
}

func newWatcher() (*watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch logs: %w (see the sysctl fs.inotify.max_user_instances)", err)
	}
	w := &watcher{fd: fd, file: os.NewFile(uintptr(fd), "inotify"), out: make(chan []int32), end: make(chan struct{}),
		done: make(chan struct{})}
	go w.read()
	return w, nil
}

func (w *watcher) events() <-chan []int32 {
	if w == nil {
		return nil
	}
	return w.out
}

// add has the next write to a file told, or that it was renamed, and only that.
func (w *watcher) add(path string) (wd int32, err error) {
	if w == nil {
		return 0, unix.ENOSYS
	}
	n, err := unix.InotifyAddWatch(w.fd, path, unix.IN_MODIFY|unix.IN_MOVE_SELF|unix.IN_ONESHOT)
	return int32(n), err
}

// remove ends the watch of a file. It may have ended with the file.
func (w *watcher) remove(wd int32) { _, _ = unix.InotifyRmWatch(w.fd, uint32(wd)) }

func (w *watcher) close() {
	close(w.end)
	_ = w.file.Close()
	<-w.done
}

// read passes on which watches have ended (inotify(7)): by a write, or with
// their file, which is to be looked at as well. Each watch adds two events at
// most, so that the queue (fs.inotify.max_queued_events) holds those of 8,192 logs.
func (w *watcher) read() {
	defer close(w.done)
	buf := make([]byte, 16<<10)
	for {
		n, err := w.file.Read(buf)
		if err != nil {
			return
		}
		var wds []int32
		for e := buf[:n]; len(e) >= unix.SizeofInotifyEvent; {
			wds = append(wds, int32(binary.NativeEndian.Uint32(e)))
			size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(e[12:]))
			e = e[min(len(e), size):]
		}
		select {
		case w.out <- wds:
		case <-w.end:
			return
		}
	}
}
