package stdio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/fifo"
	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/poll"
	"github.com/berth-run/berth/internal/runtime/shim/logger"
)

// IO is the standard input and output of a process: FIFOs that containerd has made. The process gets them themselves,
// so that nothing is copied. It gets its output for reading and writing: a pipe with a reader never sends SIGPIPE, also
// while the agent and the shim are away. The zero value has none.
//
// The output of a process with a log goes to FIFOs beside its bundle. Package logger reads them, writes the log, and
// copies to FIFOs for attached clients.
type IO struct {
	mu sync.Mutex
	// in keeps the FIFO of standard input open for writing, until CloseIO. Without it, the input would end with the
	// agent.
	in *os.File
	// out keeps unread output. It closes when the process has ended and its reader has read everything.
	out []*os.File
	// logged has the outputs that are written to a log.
	logged []*logger.Stream
	// process has the files for the process. They are closed when it has them.
	process [3]*os.File
}

// Paths are the paths of a process's FIFOs, empty for those that it does not have.
type Paths struct {
	In, Out, Err string
	// Terminal says that the process has a terminal, which has one output.
	Terminal bool
	// InputClosed says that CloseInput has ended the input.
	InputClosed bool
	// Repeated says that the process is created again. Its output may have lost its reader since the first time.
	Repeated bool
	// Log says where the output is logged, nil for a process without a log.
	Log *Log
}

// Log describes the log of a process.
type Log struct {
	Path string
	// Dir is the directory for the FIFOs that the process writes to.
	Dir string
	// Limits is the path of the file with the log's limits.
	Limits string
}

// files returns the files of an output.
func (l Log) files(fd int, reader string) (name string, p logger.Paths) {
	name = [...]string{1: "stdout", 2: "stderr"}[fd]
	return name, logger.Paths{Pipe: filepath.Join(l.Dir, name), Copy: reader}
}

// Owner is the owner of the FIFOs of a container: the user that is root in its user namespace, and the SELinux label of
// its files.
type Owner struct {
	UID, GID uint32
	Label    string
}

// Open opens the FIFOs of a process that starts. It waits until the runtime has opened its ends, unless the process is
// created again.
func (s *IO) Open(ctx context.Context, p Paths, own Owner) error {
	paths := [3]string{p.In, p.Out, p.Err}
	if p.Terminal {
		paths[2] = ""
	}
	var log *logger.Log
	if p.Log != nil {
		var err error
		if log, err = logger.Open(p.Log.Path, p.Log.Limits); err != nil {
			return fmt.Errorf("open log: %w", err)
		}
		defer log.Close()
	}
	for fd, path := range paths {
		var err error
		if p.Repeated && fd > 0 && path != "" {
			reader, err := openFIFO(path, os.O_RDWR)
			if err != nil {
				return err
			}
			defer reader.Close()
		}
		if log != nil && fd > 0 && path != "" {
			err = s.openLogged(ctx, fd, path, own, log, *p.Log)
		} else {
			err = s.open(ctx, fd, path, own)
		}
		if err != nil {
			_ = s.Close()
			return fmt.Errorf("open standard I/O %q: %w", path, err)
		}
	}
	return nil
}

// openLogged opens an output that is written to a log. path is the FIFO for attached clients.
func (s *IO) openLogged(ctx context.Context, fd int, path string, own Owner, log *logger.Log, l Log) error {
	reader, err := fifo.OpenFifo(ctx, path, syscall.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer reader.Close()
	name, paths := l.files(fd, path)
	if err := os.Remove(paths.Pipe); err != nil && !errors.Is(err, os.ErrNotExist) { // of a creation that was cut short
		return err
	}
	const mode = 0o700
	if err := unix.Mkfifo(paths.Pipe, mode); err != nil {
		return &os.PathError{Op: "mkfifo", Path: paths.Pipe, Err: err}
	}
	if err := own.take(paths.Pipe); err != nil {
		return err
	}
	if s.process[fd], err = openFIFO(paths.Pipe, os.O_RDWR); err != nil {
		return err
	}
	stream, err := log.Start(name, paths)
	if err != nil {
		return err
	}
	s.addLogged(stream)
	return nil
}

func (s *IO) addLogged(stream *logger.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logged = append(s.logged, stream)
}

// streams returns the outputs that are written to a log.
func (s *IO) streams() []*logger.Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.logged)
}

func (s *IO) open(ctx context.Context, fd int, path string, own Owner) (err error) {
	if path == "" {
		s.process[fd], err = os.OpenFile(os.DevNull, os.O_RDWR, 0)
		return err
	}
	if strings.Contains(path, "://") {
		return fmt.Errorf("not a FIFO: %w", errdefs.ErrNotImplemented)
	}
	if err := own.take(path); err != nil {
		return err
	}
	if fd == 0 {
		if err := s.keepInput(path); err != nil {
			return err
		}
		s.process[fd], err = openFIFO(path, os.O_RDONLY)
		return err
	}
	// Opening for writing waits for the reader. A reader that came later than the end of the process would wait for
	// ever.
	reader, err := fifo.OpenFifo(ctx, path, syscall.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer reader.Close()
	if s.process[fd], err = openFIFO(path, os.O_RDWR); err != nil {
		return err
	}
	return s.keep(path)
}

// keep opens a FIFO of output, so that its content stays.
func (s *IO) keep(path string) error {
	file, err := openFIFO(path, os.O_RDWR)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = append(s.out, file)
	return nil
}

// keepInput opens the FIFO of input for writing too, so that the input does not end.
func (s *IO) keepInput(path string) error {
	file, err := openFIFO(path, os.O_RDWR)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.in = file
	return nil
}

// Reopen opens what a shim before has kept open of a process. The FIFOs of a process may be gone.
func (s *IO) Reopen(p Paths) {
	if p.In != "" && !p.InputClosed {
		_ = s.keepInput(p.In)
	}
	var log *logger.Log
	if p.Log != nil {
		log = logger.Reopen(p.Log.Path, p.Log.Limits)
		defer log.Close()
	}
	for i, path := range []string{p.Out, p.Err} {
		if path == "" || p.Terminal && path == p.Err {
			continue
		}
		if log == nil {
			_ = s.keep(path)
			continue
		}
		if stream, err := log.Continue(p.Log.files(i+1, path)); err == nil {
			s.addLogged(stream)
		}
	}
}

// openFIFO opens a FIFO. The descriptor is blocking, as processes expect.
func openFIFO(path string, flags int) (*os.File, error) {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// take gives a FIFO to a container.
func (o Owner) take(path string) error {
	if o.UID != 0 || o.GID != 0 {
		if err := os.Chown(path, int(o.UID), int(o.GID)); err != nil {
			return err
		}
	}
	if o.Label != "" {
		return unix.Setxattr(path, "security.selinux", []byte(o.Label), 0)
	}
	return nil
}

// Set implements runc.IO.
func (s *IO) Set(command *exec.Cmd) {
	command.Stdin, command.Stdout, command.Stderr = s.process[0], s.process[1], s.process[2]
}

// Files are the files for the process. CloseAfterStart closes them.
func (s *IO) Files() [3]*os.File { return s.process }

// CloseAfterStart implements runc.StartCloser: the process has its files.
func (s *IO) CloseAfterStart() error {
	for fd, file := range s.process {
		if file != nil {
			_ = file.Close()
		}
		s.process[fd] = nil
	}
	return nil
}

// Close implements runc.IO. It drops unread output.
func (s *IO) Close() error {
	_ = s.CloseAfterStart()
	s.CloseInput()
	for _, stream := range s.streams() {
		stream.Drop()
		stream.CloseCopy()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, file := range s.out {
		_ = file.Close()
	}
	s.out = nil
	return nil
}

// Stdin implements runc.IO.
func (*IO) Stdin() io.WriteCloser { return nil }

// Stdout implements runc.IO.
func (*IO) Stdout() io.ReadCloser { return nil }

// Stderr implements runc.IO.
func (*IO) Stderr() io.ReadCloser { return nil }

// CloseInput ends the standard input, once containerd has closed its end too.
func (s *IO) CloseInput() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.in != nil {
		_ = s.in.Close()
		s.in = nil
	}
}

// Drain closes the output of a process that has ended when all of it has been read, or after Close. The reader then
// sees the end of the output. A log whose file system does not answer is waited for 5 s. It is written later if the
// file system answers again.
func (s *IO) Drain() {
	const patience = 5 * time.Second
	s.CloseInput()
	if !s.awaitLogged(patience) {
		log.L.WithField("log", s.streams()[0].LogPath()).
			Warn("cannot write a log, its file system does not answer, ending the container before its last lines")
	}
	for _, stream := range s.streams() {
		stream.CloseCopy()
	}
	// The agent may be away for long.
	poll.Pace{First: 100 * time.Microsecond, Slowest: 500 * time.Millisecond}.Until(s.drained)
}

// AwaitRead ends the output of a process that has ended. It waits until all of it is in the log and has been read, or
// the time is over.
func (s *IO) AwaitRead(limit time.Duration) {
	start := time.Now()
	s.awaitLogged(limit)
	poll.Pace{First: 100 * time.Microsecond, Slowest: 10 * time.Millisecond,
		Limit: max(1, limit-time.Since(start))}.Until(func() bool { return !s.unread() })
}

// awaitLogged waits until the output of a process that has ended is in the log. It returns false if that takes longer
// than limit.
func (s *IO) awaitLogged(limit time.Duration) bool {
	late := time.NewTimer(limit)
	defer late.Stop()
	for _, stream := range s.streams() {
		stream.End()
	}
	for _, stream := range s.streams() {
		select {
		case <-stream.Done():
		case <-late.C:
			return false
		}
	}
	return true
}

func (s *IO) unread() bool {
	if slices.ContainsFunc(s.streams(), (*logger.Stream).Unread) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.out, hasContent)
}

func hasContent(file *os.File) bool {
	n, err := unix.IoctlGetInt(int(file.Fd()), unix.TIOCINQ)
	return err == nil && n > 0
}

// Inheritable returns descriptors of unread output that stay open in a program that this one executes.
func (s *IO) Inheritable() (fds []int) {
	for _, stream := range s.streams() {
		if fd, ok := stream.Inheritable(); ok {
			fds = append(fds, fd)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, file := range s.out {
		if !hasContent(file) {
			continue
		}
		if fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD, 0); err == nil {
			fds = append(fds, fd)
		}
	}
	return fds
}

// drained closes the files of output that have been read, and reports whether all have.
func (s *IO) drained() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var unread []*os.File
	for _, file := range s.out {
		if hasContent(file) {
			unread = append(unread, file)
			continue
		}
		_ = file.Close()
	}
	s.out = unread
	return len(unread) == 0
}
