package podlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// tailBlock is how much of a file is read at a time from its end, in bytes.
const tailBlock = 64 << 10

// tail finds where the last lines of a log begin. It is fed with entries from
// the last one backwards.
type tail struct {
	want   int
	stream Stream // counted; "" counts both

	found int             // lines that are wanted
	extra int             // lines that ended after the beginning of a wanted one, and are not
	open  map[Stream]bool // streams whose first wanted line may have begun further back
	past  int             // bytes since the last wanted line was found
}

// begins takes the line before those it has seen. It returns true when the wanted
// lines begin after it.
func (t *tail) begins(line []byte) bool {
	if t.found == t.want {
		t.past += len(line)
	}
	e, err := Parse(line)
	if err != nil || len(line) > maxLine || e.Partial || t.stream != "" && e.Stream != t.stream {
		return t.past > maxLine
	}
	if t.found < t.want {
		t.found++
		t.open[e.Stream] = true
		return false
	}
	delete(t.open, e.Stream)
	if len(t.open) == 0 || t.past > maxLine {
		return true
	}
	t.extra++
	return false
}

// start is a place to begin to read: an offset, and how many lines to skip from there.
type start struct {
	offset int64
	skip   int
}

// lastLines finds the beginning of the last want lines of a file of size bytes,
// reading it backwards in blocks. It returns too how many there are, when the file has fewer.
func lastLines(f io.ReaderAt, size int64, want int, stream Stream, block int) (start, int, error) {
	t := tail{want: want, stream: stream, open: map[Stream]bool{}}
	at := start{offset: size}
	var line []byte // what is read so far of the line that the block ends inside of
	whole := false  // line has its newline; the file's last one may not have it yet
	for end := size; end > 0; {
		from := max(0, end-int64(block))
		text := make([]byte, end-from, int(end-from)+len(line))
		if _, err := f.ReadAt(text, from); err != nil {
			return start{}, 0, fmt.Errorf("read log backwards: %w", err)
		}
		text = append(text, line...)
		for {
			i := bytes.LastIndexByte(text, '\n')
			if i < 0 && from > 0 {
				break
			}
			if whole && (want == 0 || t.begins(text[i+1:])) {
				at.skip = t.extra
				return at, t.found, nil
			}
			at.offset, whole = from+int64(i+1), true
			if i < 0 {
				break
			}
			text = text[:i]
		}
		line, end = text, from
		if len(line) > maxLine+1 { // too long to be a line of a log, and one byte tells
			line = line[:maxLine+1]
		}
	}
	at.skip = t.extra
	return at, t.found, nil
}

// countLines counts the lines of a stream that can only be read forwards.
func countLines(in *lines, stream Stream) (int, error) {
	n := 0
	for {
		line, err := in.next()
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
		if e, err := Parse(line); err == nil && !e.Partial && (stream == "" || e.Stream == stream) {
			n++
		}
	}
}
