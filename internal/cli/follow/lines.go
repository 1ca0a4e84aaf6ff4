package follow

import (
	"bytes"
	"io"
	"sync"
)

// Lines lets several writers share one writer. Lines of different writers do not mix.
type Lines struct {
	mu sync.Mutex
	w  io.Writer
}

// NewLines returns a Lines that shares w.
func NewLines(w io.Writer) *Lines { return &Lines{w: w} }

// Prefixed returns a writer that begins each line with prefix. Close completes an unfinished last line. The
// writer is for one goroutine.
func (l *Lines) Prefixed(prefix string) *Prefixed {
	return &Prefixed{lines: l, prefix: []byte(prefix)}
}

// Prefixed is one of the writers that share a Lines.
type Prefixed struct {
	lines  *Lines
	prefix []byte
	rest   []byte // of a line that is not complete yet
	// begun says that the first part of an overlong line has been written.
	begun bool
}

// maxRest limits how much of an incomplete line is buffered, in bytes.
const maxRest = 64 << 10

// Write buffers data and writes the complete lines in it. It accepts all of data or fails.
func (p *Prefixed) Write(data []byte) (int, error) {
	p.rest = append(p.rest, data...)
	end := bytes.LastIndexByte(p.rest, '\n') + 1
	if end == 0 && len(p.rest) < maxRest {
		return len(data), nil
	}
	if end == 0 {
		end = len(p.rest)
	}
	err := p.flush(end)
	return len(data), err
}

// flush writes the first n buffered bytes.
func (p *Prefixed) flush(n int) error {
	out := make([]byte, 0, n+len(p.prefix))
	for line := range bytes.Lines(p.rest[:n]) {
		if !p.begun {
			out = append(out, p.prefix...)
		}
		out = append(out, line...)
		p.begun = line[len(line)-1] != '\n'
	}
	p.rest = append(p.rest[:0], p.rest[n:]...)
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	_, err := p.lines.w.Write(out)
	return err
}

// Close completes an unfinished last line.
func (p *Prefixed) Close() error {
	if len(p.rest) == 0 && !p.begun {
		return nil
	}
	p.rest = append(p.rest, '\n')
	return p.flush(len(p.rest))
}
