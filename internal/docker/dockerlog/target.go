package dockerlog

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/logfile"
)

// target is the log of a container.
type target struct {
	path string

	mu   sync.Mutex // held while the log is written
	file *os.File   // nil until the first write
	end  int64      // of the current file
}

// Create makes the log of a container. So an impossible path is an error of the container's creation.
func Create(path string) error {
	t := target{path: path}
	defer t.close()
	return t.reopen()
}

// reopen opens the file at the log's path, and creates it if another process has renamed it. If that fails, it keeps
// the previous file.
func (t *target) reopen() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open()
}

func (t *target) open() error {
	if err := logfile.MkdirAll(filepath.Dir(t.path), logfile.Depth-1); err != nil {
		return err
	}
	root, rel, err := logfile.Root(t.path)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing is written through it
	return t.openIn(root, rel)
}

func (t *target) openIn(root *os.Root, rel string) error {
	file, at, err := logfile.Append(root, rel)
	if err != nil {
		return err
	}
	if t.file != nil {
		_ = t.file.Close()
	}
	t.file, t.end = file, int64(at.Offset)
	return nil
}

// write appends lines. After an error, the log has none of these lines.
func (t *target) write(lines []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file == nil {
		if err := t.open(); err != nil {
			return err
		}
	}
	n, err := t.file.Write(lines)
	if err != nil {
		if n > 0 {
			err = errors.Join(err, t.file.Truncate(t.end))
		}
		return err
	}
	t.end += int64(n)
	return nil
}

func (t *target) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file != nil {
		_ = t.file.Close()
		t.file = nil
	}
}

// last returns the mark of the last line of the log, also if that line is in a rotated file. A log without lines has
// the zero mark.
func (t *target) last() (mark, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	root, rel, err := logfile.Root(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return mark{}, nil
	}
	if err != nil {
		return mark{}, err
	}
	defer func() { _ = root.Close() }()        // nothing is written through it
	if _, err := root.Lstat(rel); err == nil { // opening it removes a line that could not be completed
		if err := t.openIn(root, rel); err != nil {
			return mark{}, err
		}
	}
	files, err := newestFirst(root, rel)
	if err != nil {
		return mark{}, err
	}
	var m mark
	for _, name := range files {
		r, err := runsOf(root, name, m.stream)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return mark{}, err
		}
		if m == (mark{}) && r.last != "" {
			m = mark{time: r.of[r.last].time, stream: r.last}
		}
		one, seen := r.of[m.stream]
		if seen && one.time == m.time {
			m.number += one.number
		}
		if m != (mark{}) && seen && (!one.whole || one.time != m.time) {
			break // the lines before have other times
		}
	}
	return m, nil
}

// newestFirst lists the files of a log, the current one first. While a rotated file is being compressed, it lists the
// uncompressed one.
func newestFirst(root *os.Root, rel string) ([]string, error) {
	files := []string{rel}
	rotated, _, err := logfile.Rotated(root, rel)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for i := len(rotated) - 1; i >= 0; i-- {
		name := rotated[i][0]
		for _, other := range rotated[i] {
			if !strings.HasSuffix(other, logfile.Gzip) {
				name = other
			}
		}
		files = append(files, filepath.Join(filepath.Dir(rel), name))
	}
	return files, err
}

// run has the number of the last lines of a stream in a file that have the same time.
type run struct {
	time   string
	number int
	// whole says that the file has no other lines of the stream.
	whole bool
}

// runs has the run of each stream, and the stream of the last line.
type runs struct {
	of   map[string]run
	last string
}

// runsOf reads a file of a log. The caller needs the run of one stream, or of the last line's stream if stream is
// empty. Usually the end of the file has the whole run. Otherwise runsOf reads the whole file.
func runsOf(root *os.Root, name, stream string) (runs, error) {
	const enough = 256 << 10
	file, err := root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return runs{}, err
	}
	defer func() { _ = file.Close() }() // it is only read
	end, err := logfile.PlaceOf(file)
	if err != nil {
		return runs{}, err
	}
	if strings.HasSuffix(name, logfile.Gzip) {
		unpacked, err := gzip.NewReader(file)
		if err != nil {
			return runs{}, err
		}
		return scan(unpacked, false)
	}
	if size := int64(end.Offset); size > enough {
		r, err := scan(io.NewSectionReader(file, size-enough, enough), true)
		if stream == "" {
			stream = r.last
		}
		if one, seen := r.of[stream]; err != nil || seen && !one.whole {
			return r, err
		}
	}
	return scan(file, false)
}

// scan reads lines of a log. With torn set, the first line may lack its beginning and does not count.
func scan(r io.Reader, torn bool) (runs, error) {
	found := runs{of: map[string]run{}}
	lines := bufio.NewReaderSize(r, 64<<10)
	for begins := true; ; {
		line, more, err := lines.ReadLine()
		if err == io.EOF {
			return found, nil
		}
		if err != nil {
			return found, err
		}
		if begins && !torn {
			found.add(line)
		}
		begins = !more
		torn = torn && more
	}
}

// add counts a line. It ignores a line without a time or a known stream.
func (r *runs) add(line []byte) {
	m, err := markOf(line)
	if err != nil || m.stream != stdout && m.stream != stderr {
		return
	}
	one, seen := r.of[m.stream]
	if one.time == m.time {
		one.number++
	} else {
		one = run{time: m.time, number: 1, whole: !seen}
	}
	r.of[m.stream], r.last = one, m.stream
}
