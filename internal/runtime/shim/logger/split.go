package logger

import (
	"bytes"
	"time"

	"github.com/berth-run/berth/internal/base/logfile"
)

// longest is the most of the output that can be needed to find the end of a part: a line with its end "\r\n".
const longest = logfile.MaxLine + len("\r\n")

// part is the content of one line of a log.
type part struct {
	text []byte
	// full says that the container has ended the line.
	full bool
	// size is the number of bytes of output, with the line's end.
	size int
}

// nextPart returns the first part of the output. ok is false if more output must come first. With rest set there is no
// further output.
func nextPart(data []byte, rest bool) (p part, ok bool) {
	end := bytes.IndexByte(data[:min(len(data), longest)], '\n')
	if end >= 0 {
		if text := bytes.TrimSuffix(data[:end], []byte("\r")); len(text) <= logfile.MaxLine {
			return part{text, true, end + 1}, true
		}
	} else if len(data) < longest && (!rest || len(data) == 0) {
		return part{}, false
	}
	text := data[:min(len(data), logfile.MaxLine)]
	return part{text, false, len(text)}, true
}

// appendLine appends a line of the log.
func appendLine(b []byte, now time.Time, stream string, p part) []byte {
	b = now.AppendFormat(b, time.RFC3339Nano)
	b = append(append(append(b, ' '), stream...), ' ')
	if p.full {
		b = append(b, "F "...)
	} else {
		b = append(b, "P "...)
	}
	return append(append(b, p.text...), '\n')
}

// countLines returns the number of complete lines of a stream.
func countLines(log []byte, stream string) (lines int) {
	for line := range bytes.Lines(log) {
		_, after, _ := bytes.Cut(line, []byte(" "))
		name, _, _ := bytes.Cut(after, []byte(" "))
		if string(name) == stream && line[len(line)-1] == '\n' {
			lines++
		}
	}
	return lines
}
