package logger

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/logfile"
)

// Log is the log of a container. Its streams write to it.
type Log struct {
	path, limitsFile string
	streams          atomic.Int32 // that have not ended

	// mu is held while the log is written, which lasts for ever on a file system that does not answer.
	mu     sync.Mutex
	file   *os.File
	at     logfile.Place // the end of the current file
	limits logfile.Limits
	retry  time.Time // of the rotation, after a failure
	// dropped counts the lines that could not be written since the last line that was.
	dropped int
}

// Open opens the log at a path, and creates it if there is none. limitsFile has its limits.
func Open(path, limitsFile string) (*Log, error) {
	l := &Log{path: path, limitsFile: limitsFile, limits: logfile.ReadLimits(limitsFile)}
	if err := logfile.MkdirAll(filepath.Dir(path), logfile.Depth-1); err != nil {
		return nil, err
	}
	return l, l.open()
}

// Reopen is Open for a log that a logger before has written. The streams open its file, and try again with each line if
// they cannot: a file system that does not answer delays the log, and not the caller.
func Reopen(path, limitsFile string) *Log {
	return &Log{path: path, limitsFile: limitsFile, limits: logfile.ReadLimits(limitsFile)}
}

// open opens the current file, in place of the one before.
func (l *Log) open() error {
	root, rel, err := logfile.Root(l.path)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing is written through it
	return l.openIn(root, rel)
}

func (l *Log) openIn(root *os.Root, rel string) error {
	file, at, err := logfile.Append(root, rel)
	if err != nil {
		return err
	}
	if l.file != nil {
		_ = l.file.Close()
	}
	l.file, l.at = file, at
	return nil
}

// refresh follows a rename of the current file. It keeps the renamed file if it cannot create another.
func (l *Log) refresh() {
	var stat unix.Stat_t
	err := unix.Lstat(l.path, &stat)
	at := logfile.Place{Device: stat.Dev, Inode: stat.Ino, Offset: uint64(stat.Size)}
	if err == nil && l.file != nil && at.SameFile(l.at) {
		l.at = at
		return
	}
	if err := l.open(); err != nil && l.dropped == 0 && l.file == nil {
		l.warn(err, "cannot open a log")
	}
}

// write writes the complete lines at the beginning of a stream's output, and with rest set also what follows them. It
// calls commit before it writes, and whenever another part of the output is in the log: before place at, or in earlier
// files.
func (l *Log) write(stream string, data []byte, rest bool, commit func(written int, at logfile.Place)) {
	const (
		chunk = 128 << 10
		most  = logfile.MaxLine + 100 // the length of a line of the log
	)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refresh()
	commit(0, l.at)
	now, written := time.Now(), 0
	b := make([]byte, 0, min(2*len(data)+most, chunk+most))
	for p, ok := nextPart(data, rest); ok; p, ok = nextPart(data[written:], rest) {
		begin := len(b)
		b = appendLine(b, now, stream, p)
		due := l.due(uint64(begin), uint64(len(b)), now)
		if due || begin >= chunk {
			l.append(b[:begin])
			b = b[:copy(b, b[begin:])]
		}
		if due {
			commit(written, l.at)
			l.rotate(now)
			commit(written, l.at)
		}
		written += p.size
	}
	l.append(b)
	commit(written, l.at)
}

// due reports whether to rotate the log before its next line. begin and end are the places of that line after what the
// current file has.
func (l *Log) due(begin, end uint64, now time.Time) bool {
	return l.limits.MaxSize > 0 && l.at.Offset+begin > 0 && l.at.Offset+end >= uint64(l.limits.MaxSize) &&
		!now.Before(l.retry)
}

// append appends lines to the current file. Lines that cannot be written are dropped, so that the container does not
// wait.
func (l *Log) append(lines []byte) {
	if len(lines) == 0 {
		return
	}
	n, err := 0, errNotOpen
	if l.file != nil {
		n, err = l.file.Write(lines)
	}
	if err == nil {
		if l.dropped > 0 {
			log.L.WithFields(log.Fields{"log": l.path, "lines": l.dropped}).
				Warn("writing a log again, lines before were dropped")
		}
		l.at.Offset += uint64(n)
		l.dropped = 0
		return
	}
	whole := bytes.LastIndexByte(lines[:n], '\n') + 1
	l.at.Offset += uint64(whole)
	if whole < n {
		if failed := l.file.Truncate(int64(l.at.Offset)); failed != nil {
			l.at.Offset += uint64(n - whole)
		}
	}
	if l.dropped == 0 {
		l.warn(err, "cannot write a log, dropping lines until it can be written")
	}
	l.dropped += bytes.Count(lines[whole:], []byte("\n"))
}

var errNotOpen = errors.New("the log is not open")

func (l *Log) warn(err error, message string) {
	log.L.WithError(err).WithField("log", l.path).Warn(message)
}

// end notes the end of a stream. The log is closed with the last one: other processes wait for this before they read
// the end of the log.
func (l *Log) end() {
	if l.streams.Add(-1) > 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dropped > 0 {
		log.L.WithFields(log.Fields{"log": l.path, "lines": l.dropped}).
			Warn("the container has ended, the last lines of its log were dropped")
	}
	if l.file != nil {
		_ = l.file.Close()
		l.file = nil
	}
}

// Close closes a log without streams.
func (l *Log) Close() {
	if l.streams.Load() > 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_ = l.file.Close()
		l.file = nil
	}
}
