package podlog

import (
	"bufio"
	"errors"
	"io"
	"time"
)

// timeFormat is the format of kubectl logs --timestamps: RFC 3339 with all nine digits.
const timeFormat = "2006-01-02T15:04:05.000000000Z07:00"

// output takes the lines of a log's files, in their order, and writes the wanted ones.
type output struct {
	stream     Stream    // Options.Stream
	since      time.Time // Options.Since
	timestamps bool      // Options.Timestamps
	w          *bufio.Writer
	join       joiner
	skip       int       // lines before the first wanted one
	last       time.Time // time of the last entry
	damaged    int       // lines that cannot be parsed
}

func newOutput(o Options, w io.Writer) *output {
	return &output{stream: o.Stream, since: o.Since, timestamps: o.Timestamps,
		w: bufio.NewWriterSize(limit(w, o.LimitBytes), 32<<10)}
}

// take parses one line of a file.
func (o *output) take(line []byte) error {
	e, err := Parse(line)
	if err != nil {
		o.damaged++
		return nil //nolint:nilerr // all of them are reported once, at the end
	}
	o.last = e.Time
	if o.stream != "" && e.Stream != o.stream {
		return nil
	}
	if p, ok := o.join.add(e); ok {
		return o.emit(p)
	}
	return nil
}

// emit writes a line of the container if it is wanted.
func (o *output) emit(p piece) error {
	if o.skip > 0 {
		if !p.Partial {
			o.skip--
		}
		return nil
	}
	if p.Time.Before(o.since) {
		return nil
	}
	if o.timestamps && !p.continued {
		stamp := p.Time.AppendFormat(o.w.AvailableBuffer(), timeFormat)
		if _, err := o.w.Write(append(stamp, ' ')); err != nil {
			return err
		}
	}
	if _, err := o.w.Write(p.Content); err != nil {
		return err
	}
	if p.Partial {
		return nil
	}
	return o.w.WriteByte('\n')
}

// end writes the unfinished lines at the end of the log.
func (o *output) end() error {
	for _, p := range o.join.rest() {
		if err := o.emit(p); err != nil {
			return err
		}
	}
	return nil
}

// errLimit ends a Read that has reached its limit.
var errLimit = errors.New("limit reached")

// limit passes this many bytes on to w; nil: all.
func limit(w io.Writer, bytes *int64) io.Writer {
	if bytes == nil {
		return w
	}
	return &limited{w: w, left: *bytes}
}

type limited struct {
	w    io.Writer
	left int64
}

func (l *limited) Write(p []byte) (int, error) {
	n, err := l.w.Write(p[:min(int64(len(p)), l.left)])
	if l.left -= int64(n); err == nil && l.left == 0 {
		err = errLimit
	}
	return n, err
}
