package logger

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/logfile"
)

// Paths are the files of a stream.
type Paths struct {
	// Pipe is the FIFO that the container writes to. The spool is beside it.
	Pipe string
	// Copy is the FIFO for attached clients.
	Copy string
}

func (p Paths) spool() string { return p.Pipe + ".spool" }

// Stream is one output of a container: standard output or standard error.
type Stream struct {
	name string
	log  *Log
	pipe *os.File

	spool *spool
	done  chan struct{}

	mu sync.Mutex // guards copy
	// copy is closed with CloseCopy, when the output has ended.
	copy copier
	// dropped is set by Drop: what has not been read stays unread.
	dropped chan struct{}
	once    sync.Once
}

// Start reads a stream of a container that is being created, in the background.
func (l *Log) Start(name string, p Paths) (*Stream, error) {
	spool, err := newSpool(p.spool())
	if err != nil {
		return nil, fmt.Errorf("make spool: %w", err)
	}
	return l.read(name, p, spool)
}

// Continue continues with a stream of a logger before.
func (l *Log) Continue(name string, p Paths) (*Stream, error) {
	spool, err := openSpool(p.spool())
	if err != nil {
		return nil, fmt.Errorf("open spool: %w", err)
	}
	return l.read(name, p, spool)
}

func (l *Log) read(name string, p Paths, spool *spool) (*Stream, error) {
	fd, err := unix.Open(p.Pipe, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = spool.file.Close()
		return nil, &os.PathError{Op: "open", Path: p.Pipe, Err: err}
	}
	s := &Stream{
		name: name, log: l, pipe: os.NewFile(uintptr(fd), p.Pipe), spool: spool, copy: copier{path: p.Copy},
		done: make(chan struct{}), dropped: make(chan struct{}),
	}
	s.copy.open()
	l.streams.Add(1)
	go s.run()
	return s, nil
}

// End reads the rest of the pipe and then ends the stream, in the background. Call it when the process has ended.
func (s *Stream) End() { _ = s.pipe.SetReadDeadline(time.Unix(1, 0)) }

// Drop ends the stream without reading what is in the pipe.
func (s *Stream) Drop() {
	s.once.Do(func() { close(s.dropped) })
	s.End()
}

// LogPath returns the path of the log's current file.
func (s *Stream) LogPath() string { return s.log.path }

// Done is closed when all output is in the log.
func (s *Stream) Done() <-chan struct{} { return s.done }

// Inheritable returns a descriptor of the container's FIFO that stays open in a program that this one executes. ok is
// false if the FIFO has been read.
func (s *Stream) Inheritable() (fd int, ok bool) {
	raw, err := s.pipe.SyscallConn()
	if err != nil {
		return -1, false
	}
	_ = raw.Control(func(pipe uintptr) {
		if n, err := unix.IoctlGetInt(int(pipe), unix.TIOCINQ); err == nil && n > 0 {
			fd, err = unix.FcntlInt(pipe, unix.F_DUPFD, 0)
			ok = err == nil
		}
	})
	return fd, ok
}

// Unread reports whether an attached client has not read all of the copy.
func (s *Stream) Unread() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.copy.unread()
}

// CloseCopy ends the copy for attached clients.
func (s *Stream) CloseCopy() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.copy.close()
}

func (s *Stream) run() {
	defer close(s.done)
	defer s.log.end()
	defer func() { _, _ = s.pipe.Close(), s.spool.file.Close() }()
	s.recover()
	for s.next() {
	}
}

// recover continues with the content of a spool. An earlier logger may have written a part of it.
func (s *Stream) recover() {
	data, err := s.spool.content()
	if err != nil || len(data) == 0 {
		return
	}
	lines, end := s.log.linesAfter(s.spool.saved.At, s.name)
	skip := 0
	for range lines {
		p, ok := nextPart(data[skip:], false)
		if !ok {
			skip = len(data) // the last line was written without its end
			break
		}
		skip += p.size
	}
	_ = s.spool.save(header{s.spool.saved.Start + uint64(skip), end})
	s.write(false)
}

// write writes the content of the spool to the log, and returns it.
func (s *Stream) write(rest bool) (data []byte) {
	data, err := s.spool.content()
	if err != nil {
		s.log.warn(err, "cannot read a spool, trying again with the next output")
		return nil
	}
	start := s.spool.saved.Start
	s.log.write(s.name, data, rest, func(written int, at logfile.Place) {
		_ = s.spool.save(header{start + uint64(written), at}) // a next logger repeats lines
	})
	_ = s.spool.free() // the next call frees it
	return data
}

// next waits for output and writes it. It returns false at the end of the output.
func (s *Stream) next() bool {
	raw, err := s.pipe.SyscallConn()
	if err != nil {
		return false
	}
	var n int64
	fill := func(fd uintptr) bool {
		n, err = s.spool.fill(int(fd))
		return !errors.Is(err, unix.EAGAIN)
	}
	if raw.Read(fill) != nil { // the stream ends
		select {
		case <-s.dropped:
			return false
		default:
		}
		if raw.Control(func(fd uintptr) { fill(fd) }) != nil || errors.Is(err, unix.EAGAIN) {
			s.write(true)
			return false
		}
	}
	if err != nil {
		return s.bypass(raw, err)
	}
	data := s.write(false)
	s.copyOf(data[max(len(data)-int(n), 0):])
	return true
}

// bypass writes output to the log without the spool, which is full. If the shim is killed meanwhile, this output is
// lost.
func (s *Stream) bypass(raw syscall.RawConn, cause error) bool {
	fresh := make([]byte, batch)
	var n int
	var err error
	if failed := raw.Control(func(fd uintptr) { n, err = unix.Read(int(fd), fresh) }); failed != nil || err != nil {
		s.log.warn(errors.Join(cause, err), "cannot read the output of a container, its log ends")
		return false
	}
	fresh = fresh[:n]
	data, _ := s.spool.content()
	kept := len(data)
	start := s.spool.saved.Start
	s.log.write(s.name, append(data, fresh...), true, func(written int, at logfile.Place) {
		_ = s.spool.save(header{start + uint64(min(written, kept)), at})
	})
	_ = s.spool.empty()
	s.copyOf(fresh)
	return true
}

// copyOf copies output for attached clients.
func (s *Stream) copyOf(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.copy.write(b)
}
