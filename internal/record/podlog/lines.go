package podlog

import (
	"bytes"
	"io"
)

// lines splits a file that may still grow into lines. It keeps the text after the last newline until the rest of the
// line is written.
type lines struct {
	src      io.Reader
	buf      []byte
	from, to int  // the unread part of buf
	tooLong  bool // within a line of more than maxLine bytes
	damaged  int  // number of lines that were too long
}

func newLines(src io.Reader) *lines {
	return &lines{src: src, buf: make([]byte, 64<<10)}
}

// next returns the next line without its newline, valid until the next call. At the present end of the file it returns
// io.EOF and may be called again.
func (l *lines) next() ([]byte, error) {
	searched := 0
	for {
		unread := l.buf[l.from:l.to]
		if i := bytes.IndexByte(unread[searched:], '\n'); i >= 0 {
			line := unread[:searched+i]
			l.from += searched + i + 1
			if l.tooLong {
				l.tooLong = false
				searched = 0
				continue
			}
			return line, nil
		}
		searched = len(unread)
		if l.tooLong || searched > maxLine {
			if !l.tooLong {
				l.damaged++
			}
			l.tooLong = true
			l.from, l.to, searched = 0, 0, 0
		}
		if err := l.fill(); err != nil {
			return nil, err
		}
	}
}

// fill reads more text after the unread part.
func (l *lines) fill() error {
	if l.from > 0 {
		l.to = copy(l.buf, l.buf[l.from:l.to])
		l.from = 0
	}
	if l.to == len(l.buf) {
		l.buf = append(l.buf, make([]byte, len(l.buf))...)
	}
	n, err := l.src.Read(l.buf[l.to:])
	l.to += n
	if n > 0 {
		return nil
	}
	return err
}

// rest returns the text after the last newline.
func (l *lines) rest() []byte {
	rest := l.buf[l.from:l.to]
	l.from, l.to = 0, 0
	if l.tooLong {
		return nil
	}
	return rest
}

// restart begins again at the first byte of the file, after it was truncated.
func (l *lines) restart() {
	l.from, l.to, l.tooLong = 0, 0, false
}
