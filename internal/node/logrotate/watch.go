package logrotate

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// watcher reports the first write to each watched file, using inotify. A nil watcher watches nothing.
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

// add watches for the next write to a file or its next rename. The watch ends with that event.
func (w *watcher) add(path string) (wd int32, err error) {
	if w == nil {
		return 0, unix.ENOSYS
	}
	n, err := unix.InotifyAddWatch(w.fd, path, unix.IN_MODIFY|unix.IN_MOVE_SELF|unix.IN_ONESHOT)
	return int32(n), err
}

// remove ends the watch of a file. It is harmless if the watch has ended already.
func (w *watcher) remove(wd int32) { _, _ = unix.InotifyRmWatch(w.fd, uint32(wd)) }

func (w *watcher) close() {
	close(w.end)
	_ = w.file.Close()
	<-w.done
}

// read reports which watches have ended (inotify(7)): after a write, or with their file, which must be checked too.
// Each watch adds at most two events, so the default queue (fs.inotify.max_queued_events) suffices for 8,192 logs.
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
