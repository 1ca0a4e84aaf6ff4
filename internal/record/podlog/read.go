package podlog

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-run/berth/internal/base/inotify"
)

// Options selects the part of a log to read. The zero value selects all of it.
type Options struct {
	// Stream is the stream to read. Empty: both.
	Stream Stream
	// Tail is the number of lines to read from the end, 0 or more. nil: all.
	Tail *int64
	// Since is the time before which lines are skipped. Zero: no line is skipped.
	Since time.Time
	// LimitBytes ends the output after this many bytes, 1 or more. nil: no limit.
	LimitBytes *int64
	// Timestamps writes the time and a space before each line.
	Timestamps bool
	// Follow continues with lines that are written after the reading began.
	Follow bool
	// Ended is closed when the container has ended. Following then ends after everything it wrote is read. nil:
	// following ends with the context.
	Ended <-chan struct{}
	// Log receives what could not be read. Default: nothing is logged.
	Log *slog.Logger
}

func (o *Options) check() error {
	switch {
	case o.Tail != nil && *o.Tail < 0:
		return fmt.Errorf("read log: tail %d is negative", *o.Tail)
	case o.LimitBytes != nil && *o.LimitBytes < 1:
		return fmt.Errorf("read log: limit of %d bytes is less than 1", *o.LimitBytes)
	case o.Stream != "" && o.Stream != Stdout && o.Stream != Stderr:
		return fmt.Errorf("read log: stream %q is neither stdout nor stderr", o.Stream)
	}
	return nil
}

// Read writes the lines of the log at path, "<pod log directory>/<container>/<n>.log", to w. It begins with the rotated
// files that still exist. Lines written in parts are joined up to 1 MiB; longer lines come in pieces. Lines that cannot
// be parsed are skipped. Read writes all present lines to w before it waits for more. It returns ctx's error if ctx
// ends first, an error that is fs.ErrNotExist if the log does not exist, and w's error.
func Read(ctx context.Context, path string, o Options, w io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	return newReader(path, o, w).read(ctx)
}

// newReader prepares a Read.
func newReader(path string, o Options, w io.Writer) *reader {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	// Docker stores and rotates its logs in another directory.
	if target, err := os.Readlink(path); err == nil && isDockerLog(target) {
		path = target
	}
	return &reader{Options: o, path: path, out: newOutput(o, w), grace: writerGrace, heldGrace: heldGrace}
}

// isDockerLog reports whether the target of a link is a log of Docker: .../containers/<id>/<id>-json.log. A link in the
// place of a log may lead to no other file.
func isDockerLog(target string) bool {
	dir, base := filepath.Split(target)
	id := filepath.Base(dir)
	raw, err := hex.DecodeString(id)
	return filepath.IsAbs(target) && err == nil && len(raw) == 32 && base == id+"-json.log" &&
		filepath.Base(filepath.Dir(filepath.Clean(dir))) == "containers"
}

// reader is the state of one Read.
type reader struct {
	Options
	path string
	out  *output

	cur  *file
	next *file // the file after cur, read when cur is complete
	gone bool  // cur was deleted or compressed, and has been read to its end since
	// overtaken says that the file after cur was rotated too.
	overtaken bool

	events *watcher      // nil unless following
	curWD  inotify.Watch // the watches of the files
	nextWD inotify.Watch
	due    time.Time // since when cur is due, or zero
	grace  time.Duration
	// heldGrace is the grace of a file that its writer has open.
	heldGrace time.Duration
}

func (r *reader) read(ctx context.Context) error {
	err := r.files(ctx)
	if flush := r.out.w.Flush(); err == nil {
		err = flush
	}
	if r.out.damaged > 0 {
		r.Log.Warn("skipped log lines that cannot be parsed", "path", r.path, "lines", r.out.damaged)
	}
	if errors.Is(err, errLimit) {
		return nil
	}
	return err
}

// files reads the files one after the other.
func (r *reader) files(ctx context.Context) (err error) {
	if r.Follow {
		// The watch begins before the first look at the files, so that no change is missed.
		if r.events, err = watch(filepath.Dir(r.path)); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.events.close()) }()
	}
	if err := r.begin(); err != nil {
		return err
	}
	defer func() {
		r.out.damaged += r.cur.damaged
		err = errors.Join(err, r.cur.close())
		if r.next != nil {
			err = errors.Join(err, r.next.close())
		}
	}()
	if r.Follow {
		err = r.follow(ctx)
	} else {
		err = r.once(ctx)
	}
	if err != nil {
		return err
	}
	return r.out.end()
}

// begin opens the file that contains the first wanted line.
func (r *reader) begin() error {
	var skipped error
	err := stable(r.path, func(files []generation) (err error) {
		if r.cur != nil {
			err = r.cur.close()
			r.cur = nil
		}
		if err != nil {
			return err
		}
		if r.Tail != nil {
			skipped, err = r.beginTail(files)
		} else {
			skipped, err = r.beginAll(files)
		}
		return err
	})
	r.unreadable(skipped)
	if err == nil && r.cur == nil {
		err = &fs.PathError{Op: "open", Path: r.path, Err: fs.ErrNotExist}
	}
	switch {
	case err == nil:
		return nil
	case r.cur != nil:
		err = errors.Join(err, r.cur.close())
	}
	return fmt.Errorf("open log: %w", err)
}

// beginAll opens the oldest file that may have lines after Since.
func (r *reader) beginAll(files []generation) (skipped, err error) {
	for len(files) > 1 && files[0].info.ModTime().Before(r.Since) {
		files = files[1:]
	}
	r.cur, skipped, err = openFirst(files)
	return skipped, err
}

// beginTail searches backwards from the newest file until there are enough lines.
func (r *reader) beginTail(files []generation) (skipped, err error) {
	want := int(min(*r.Tail, 1<<31))
	for i := len(files) - 1; i >= 0; i-- {
		l, at, found, err := r.lookBack(files[i].path, want)
		if err != nil && i < len(files)-1 && !errors.Is(err, fs.ErrNotExist) {
			skipped = fmt.Errorf("%s: %w", files[i].path, err)
			r.cur, _, err = openFirst(files[i+1:])
			return skipped, err
		}
		if err != nil {
			return nil, err
		}
		if found < want && i > 0 {
			want -= found
			if err := l.close(); err != nil {
				return nil, err
			}
			continue
		}
		r.cur, r.out.skip = l, at.skip
		if l.gzip {
			return nil, nil
		}
		return nil, l.seek(at.offset)
	}
	return nil, nil
}

// lookBack opens a file and finds its last lines.
func (r *reader) lookBack(name string, want int) (l *file, at start, found int, err error) {
	if l, err = openFile(name); err != nil {
		return nil, start{}, 0, err
	}
	if !l.gzip {
		at, found, err = lastLines(l.f, l.info.Size(), want, r.Stream, tailBlock)
	} else {
		found, err = countLines(l.lines, r.Stream)
		at.skip = max(0, found-want)
	}
	if err != nil {
		return nil, start{}, 0, errors.Join(err, l.close())
	}
	if l.gzip { // a compressed file must be read again from its beginning
		if err := l.close(); err != nil {
			return nil, start{}, 0, err
		}
		l, err = openFile(name)
	}
	return l, at, found, err
}

// once reads up to the present end of the log.
func (r *reader) once(ctx context.Context) error {
	for {
		if err := r.drain(ctx); err != nil {
			return err
		}
		again, err := r.lookAhead()
		switch {
		case err != nil:
			return err
		case again:
			continue
		case r.next == nil:
			return r.torn()
		}
		if err := r.drain(ctx); err != nil { // lines written before the next file was created
			return err
		}
		if err := r.turn(); err != nil {
			return err
		}
	}
}

// lookAhead opens the file after cur, if there is one. again says that cur was deleted or compressed. The reader must
// then read the rest of cur first: only then can it distinguish the next file from a compressed copy of cur.
func (r *reader) lookAhead() (again bool, err error) {
	var skipped error
	err = stable(r.path, func(files []generation) (err error) {
		if r.next != nil {
			err = r.next.close()
			r.next = nil
		}
		if err != nil {
			return err
		}
		at := position(files, r.cur)
		if again = at < 0 && !r.gone; again {
			return nil
		}
		if files = files[at+1:]; r.gone {
			files = r.cur.newer(r.path, files, r.out.last)
		}
		r.next, skipped, err = openFirst(files)
		return err
	})
	r.gone = r.gone || again
	r.unreadable(skipped)
	return again, err
}

// turn continues with the next file.
func (r *reader) turn() error {
	if err := r.torn(); err != nil {
		return err
	}
	if err := r.cur.close(); err != nil {
		return err
	}
	r.out.damaged += r.cur.damaged
	r.cur, r.next = r.next, nil
	r.gone, r.overtaken = false, false
	return nil
}

// torn reads the end of a file that will not get another newline.
func (r *reader) torn() error {
	if rest := r.cur.rest(); len(rest) > 0 {
		return r.out.take(rest)
	}
	return nil
}

// drain reads everything in cur.
func (r *reader) drain(ctx context.Context) error {
	for n := 0; !r.cur.broken; n++ {
		if n%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		line, err := r.cur.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && r.cur.gzip: // the rest of the file is lost, but later files are read
			r.unreadable(fmt.Errorf("%s: %w", r.cur.f.Name(), err))
			r.cur.broken = true
		case err != nil:
			return fmt.Errorf("read log: %w", err)
		default:
			if err := r.out.take(line); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *reader) unreadable(err error) {
	if err != nil {
		r.Log.Warn("skipped log files that cannot be read", "path", r.path, "err", err)
	}
}
