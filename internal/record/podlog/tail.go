package podlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// tailBlock is the number of bytes read at a time from the end of a file.
const tailBlock = 64 << 10

// tail finds where the last lines of a log begin. It gets the entries in reverse order.
type tail struct {
	want   int
	stream Stream // the stream to count; "" counts both

	found int             // wanted lines
	extra int             // unwanted lines that end after the beginning of a wanted one
	open  map[Stream]bool // streams whose first wanted line may begin earlier
	past  int             // bytes since the last wanted line was found
}

// begins processes the line before those already processed. It returns true if the wanted lines begin after it.
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

// start is where to begin to read: an offset, and the number of lines to skip from there.
type start struct {
	offset int64
	skip   int
}

// lastLines finds the beginning of the last want lines in a file of size bytes. It reads backwards in blocks. It also
// returns the number of lines found, which is smaller if the file has fewer.
func lastLines(f io.ReaderAt, size int64, want int, stream Stream, block int) (start, int, error) {
	t := tail{want: want, stream: stream, open: map[Stream]bool{}}
	at := start{offset: size}
	var line []byte // the part already read of the line at the start of the block
	whole := false  // line has its newline; the last line of the file may lack it
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
		if len(line) > maxLine+1 { // longer than any log line; one more byte shows that
			line = line[:maxLine+1]
		}
	}
	at.skip = t.extra
	return at, t.found, nil
}

// countLines counts the lines of a stream in a file that can only be read forwards.
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
