package dockerlog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/safepath"
)

const (
	// block is how much is read at once.
	block = 64 << 10
	// longest is the most bytes of a line. A longer line is damaged: Docker writes at most 16 KiB of output, with six
	// characters for each byte, and the container's labels.
	longest = 1 << 20
)

// identity identifies a file, whatever its name.
type identity struct{ device, inode uint64 }

// generation is one of Docker's files of a container's output.
type generation struct {
	path string
	// age is how often the file was renamed: 0 for the current file.
	age int
	identity
}

// generations lists Docker's files of a container, oldest first. Docker renames one file after the other, so one look
// may find files of different rotations and miss a file. Two equal looks exclude that.
func generations(path string) ([]generation, error) {
	var last []generation
	for first := true; ; first = false {
		all, err := look(path)
		if err != nil || !first && slices.Equal(last, all) {
			return all, err
		}
		last = all
	}
}

// look lists the files once, oldest first.
func look(path string) ([]generation, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	var all []generation
	for _, e := range entries {
		g := generation{path: filepath.Join(filepath.Dir(path), e.Name())}
		if suffix, rotated := strings.CutPrefix(e.Name(), filepath.Base(path)+"."); rotated {
			if g.age, err = strconv.Atoi(suffix); err != nil || g.age <= 0 {
				continue
			}
		} else if e.Name() != filepath.Base(path) {
			continue
		}
		var stat unix.Stat_t
		if unix.Lstat(g.path, &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		g.identity = identity{stat.Dev, stat.Ino}
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b generation) int { return cmp.Compare(b.age, a.age) })
	return all, nil
}

// source reads the lines of Docker's files of a container, across their rotations.
type source struct {
	path string
	file *os.File // nil before the first file
	id   identity
	// at is the offset in the file after the lines that next has returned.
	at int64

	buf     []byte
	unread  []byte // the part of buf that follows at
	skipped int    // lines that were too long or had no end
	// overlong is set within a line that is too long.
	overlong bool
}

// open opens a generation at its beginning. It fails with fs.ErrNotExist if the path now leads to another file.
func (s *source) open(g generation) error {
	file, err := os.OpenFile(g.path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	id, _, err := fileOf(file)
	if err == nil && id != g.identity {
		err = fmt.Errorf("open %s: it was renamed: %w", g.path, fs.ErrNotExist)
	}
	if err != nil {
		_ = file.Close()
		return err
	}
	s.close()
	s.file, s.id, s.at = file, id, 0
	return nil
}

func (s *source) close() {
	if s.file != nil {
		_ = s.file.Close() // it is only read
	}
	s.file, s.unread, s.overlong = nil, nil, false
}

// fileOf returns the identity and the size of an open file.
func fileOf(file *os.File) (identity, int64, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return identity{}, 0, &os.PathError{Op: "stat", Path: file.Name(), Err: err}
	}
	return identity{stat.Dev, stat.Ino}, stat.Size, nil
}

// next returns the next line of the file without its end. The line is valid until the next call. The error is io.EOF
// at the present end of the file; a line without an end stays unread.
func (s *source) next() ([]byte, error) {
	if s.file == nil {
		return nil, io.EOF
	}
	searched := 0
	for {
		if i := bytes.IndexByte(s.unread[searched:], '\n'); i >= 0 {
			line := s.unread[:searched+i]
			s.at += int64(len(line)) + 1
			s.unread = s.unread[len(line)+1:]
			searched = 0
			if s.overlong {
				s.overlong = false
				continue
			}
			return line, nil
		}
		searched = len(s.unread)
		if searched > longest || s.overlong {
			if !s.overlong {
				s.skipped++
			}
			s.overlong = true
			s.at += int64(searched)
			s.unread, searched = nil, 0
		}
		if err := s.fill(); err != nil {
			return nil, err
		}
	}
}

// fill reads more of the file behind the unread part.
func (s *source) fill() error {
	if cap(s.buf) < len(s.unread)+block {
		s.buf = make([]byte, 2*len(s.unread)+block)
	}
	s.buf = s.buf[:cap(s.buf)]
	kept := copy(s.buf, s.unread)
	n, err := s.file.ReadAt(s.buf[kept:], s.at+int64(kept))
	s.unread = s.buf[:kept+n]
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// rewind continues at an earlier place in the file.
func (s *source) rewind(at int64) { s.at, s.unread, s.overlong = at, nil, false }

// lend gives the source a buffer to read into, or takes the buffer back with nil. It returns the previous buffer.
func (s *source) lend(buf []byte) (before []byte) {
	before, s.buf, s.unread = s.buf, buf, nil
	return before
}

// outcome is the result of follow.
type outcome int

const (
	// wait: the current file has no further output yet.
	wait outcome = iota
	// advanced: the next file is open, or the current one has further output.
	advanced
	// lost: the next file is open, but Docker has removed files before it that were not read.
	lost
)

// follow opens the next file when the current one has been renamed. Call it at the end of a file. Docker closes a file
// before it renames it, but it may have written to the file since the source reached the end. So follow lets the caller
// read the renamed file to its end once more.
func (s *source) follow() (outcome, error) {
	files, err := generations(s.path)
	if err != nil || len(files) == 0 || files[len(files)-1].age != 0 {
		return wait, safepath.IgnoreMissing(err) // Docker is renaming files, or has not begun
	}
	if s.file == nil {
		return s.switchTo(files[0], advanced)
	}
	at := slices.IndexFunc(files, func(g generation) bool { return g.identity == s.id })
	_, size, err := fileOf(s.file)
	switch {
	case err != nil:
		return wait, err
	case at == len(files)-1 && size < s.at: // Docker truncates the file if it may have only one
		s.rewind(0)
		return lost, nil
	case at == len(files)-1:
		return wait, nil
	case size > s.at+int64(len(s.unread)):
		return advanced, nil // written before it was renamed
	}
	if len(s.unread) > 0 {
		s.skipped++ // dockerd was killed while it wrote this line
	}
	if at < 0 {
		return s.switchTo(files[0], lost)
	}
	return s.switchTo(files[at+1], advanced)
}

// switchTo opens another file. If Docker has renamed the file meanwhile, the next call of follow lists the files again.
func (s *source) switchTo(g generation, o outcome) (outcome, error) {
	err := s.open(g)
	if errors.Is(err, fs.ErrNotExist) {
		return advanced, nil
	}
	if err != nil {
		return wait, err
	}
	return o, nil
}

// seek goes to the place in Docker's files after a line of the log. gone reports that Docker has removed the line. Then
// seek goes to the first line with a later time, or to the end if there is none.
func (s *source) seek(m mark) (gone bool, err error) {
	files, err := generations(s.path)
	if err != nil || len(files) == 0 {
		return false, safepath.IgnoreMissing(err)
	}
	if m == (mark{}) {
		_, err := s.switchTo(files[0], advanced)
		return false, err
	}
	first := 0
	for i, g := range slices.Backward(files) {
		if i == 0 {
			break
		}
		if stamp, err := s.firstTime(g, m.stream); err == nil && before(stamp, m.time) {
			first = i
			break
		}
	}
	var later *position
	for _, g := range files[first:] {
		if found, err := s.find(g, &m, &later); found || err != nil {
			return false, err
		}
	}
	return true, s.resumeAt(later)
}

// position is a place in one of Docker's files.
type position struct {
	generation
	at int64
}

// firstTime opens a file and returns the time of its first line of a stream. The times of one stream never decrease, so
// earlier files have no later line of the stream.
func (s *source) firstTime(g generation, stream string) (string, error) {
	if err := s.open(g); err != nil {
		return "", err
	}
	var text []byte
	for {
		line, err := s.next()
		if err != nil {
			return "", err
		}
		e, buf, err := parse(text[:0], line)
		text = buf
		if err == nil && e.stream == stream {
			return e.time, nil
		}
	}
}

// find reads a file up to the line m. It counts the lines with m's time and stream down in m.number. It notes the place
// of the first line with a later time in later.
func (s *source) find(g generation, m *mark, later **position) (found bool, err error) {
	if err := s.open(g); err != nil {
		return false, err
	}
	var text []byte
	for {
		at := s.at
		line, err := s.next()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		e, buf, err := parse(text[:0], line)
		text = buf
		if err != nil {
			continue
		}
		if m.same(e.time, e.stream) {
			if m.number--; m.number == 0 {
				return true, nil
			}
		}
		if *later == nil && before(m.time, e.time) {
			*later = &position{g, at}
		}
	}
}

// resumeAt goes to the place of the first line that is later than the log's last line. Without such a line it stays at
// the end of the last file.
func (s *source) resumeAt(later *position) error {
	if later == nil {
		return nil
	}
	if err := s.open(later.generation); err != nil {
		return err
	}
	s.at = later.at
	return nil
}
