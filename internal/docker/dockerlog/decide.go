package dockerlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

// entry is one line of a json-file. It has a line of the container's output, or a part of a line.
type entry struct {
	// text is the output with the line's end. Without an end it is a part of a line.
	text []byte
	// stream is stdout or stderr.
	stream string
	// time is as Docker wrote it: RFC 3339 in UTC, with up to nine digits after the seconds.
	time string
}

// The parts of a line as Docker writes it:
//
//	{"log":"text\n","stream":"stdout","attrs":{"label":"value"},"time":"2026-03-01T12:00:00.123456789Z"}
var (
	lineStart = []byte(`{"log":"`)
	timeStart = []byte(`"time":"`)
	lineEnd   = []byte(`"}`)
)

// parse reads a line of a json-file. It appends the text to buf, and returns the entry and the longer buf. A dockerd
// that was killed may leave a part of a line, and the next dockerd then appends its first line to that part. parse
// returns the appended line.
func parse(buf, line []byte) (entry, []byte, error) {
	if e, longer, ok := parseFast(buf, line); ok {
		return e, longer, nil
	}
	if start := bytes.LastIndex(line, lineStart); start > 0 { // within a text, the quotes have backslashes
		return parse(buf, line[start:])
	}
	var l struct {
		Log    string `json:"log"`
		Stream string `json:"stream"`
		Time   string `json:"time"`
	}
	if err := json.Unmarshal(line, &l); err != nil {
		return entry{}, buf, fmt.Errorf("parse line of json-file: %w", err)
	}
	if l.Stream != stdout && l.Stream != stderr {
		return entry{}, buf, fmt.Errorf("parse line of json-file: stream %.20q is neither stdout nor stderr", l.Stream)
	}
	if _, err := time.Parse(time.RFC3339Nano, l.Time); err != nil {
		return entry{}, buf, fmt.Errorf("parse line of json-file: %w", err)
	}
	from := len(buf)
	buf = append(buf, l.Log...)
	return entry{text: buf[from:], stream: l.Stream, time: l.Time}, buf, nil
}

const stdout, stderr = "stdout", "stderr"

// parseFast reads a line in exactly the form that Docker writes, several times faster than package json. ok is false
// for every other form.
func parseFast(buf, line []byte) (e entry, longer []byte, ok bool) {
	rest, ok := bytes.CutPrefix(line, lineStart)
	if !ok {
		return entry{}, buf, false
	}
	from := len(buf)
	buf, rest, ok = unquote(buf, rest)
	if !ok {
		return entry{}, buf[:from], false
	}
	e.text = buf[from:]
	for _, stream := range []string{stdout, stderr} {
		if after, found := bytes.CutPrefix(rest, []byte(`,"stream":"`+stream+`",`)); found {
			e.stream, rest = stream, after
			break
		}
	}
	stamp, found := bytes.CutPrefix(rest, timeStart)
	stamp, ended := bytes.CutSuffix(stamp, lineEnd)
	if e.stream == "" || !found || !ended || !validTime(stamp) {
		return entry{}, buf[:from], false
	}
	e.time = string(stamp)
	return e, buf, true
}

// validTime reports whether a time has the form that Docker writes.
func validTime(stamp []byte) bool {
	if bytes.IndexByte(stamp, '\\') >= 0 {
		return false
	}
	_, err := time.Parse(time.RFC3339Nano, string(stamp))
	return err == nil
}

// unquote appends the content of a JSON string, which begins after its first quote, to buf. rest follows the last
// quote. ok is false for a form that unquote does not know: package json then reads the line.
func unquote(buf, s []byte) (longer, rest []byte, ok bool) {
	for {
		end := bytes.IndexByte(s, '"')
		if end < 0 {
			return buf, nil, false
		}
		escape := bytes.IndexByte(s[:end], '\\')
		if escape >= 0 {
			end = escape
		}
		if !plain(s[:end]) {
			return buf, nil, false
		}
		buf = append(buf, s[:end]...)
		if escape < 0 {
			return buf, s[end+1:], true
		}
		if buf, s, ok = unescape(buf, s[end+1:]); !ok {
			return buf, nil, false
		}
	}
}

// plain reports whether text is UTF-8 without control characters, as it is between the escape sequences of a string.
func plain(text []byte) bool {
	for _, c := range text {
		if c < ' ' {
			return false
		}
	}
	return utf8.Valid(text)
}

// unescape appends the character of an escape sequence, which begins after the backslash.
func unescape(buf, s []byte) (longer, rest []byte, ok bool) {
	if len(s) == 0 {
		return buf, nil, false
	}
	switch s[0] {
	case '"', '\\', '/':
		return append(buf, s[0]), s[1:], true
	case 'n':
		return append(buf, '\n'), s[1:], true
	case 'r':
		return append(buf, '\r'), s[1:], true
	case 't':
		return append(buf, '\t'), s[1:], true
	case 'u':
		if len(s) < 5 {
			return buf, nil, false
		}
		r, err := strconv.ParseUint(string(s[1:5]), 16, 16)
		if err != nil || 0xd800 <= r && r < 0xe000 { // a half of a pair
			return buf, nil, false
		}
		return utf8.AppendRune(buf, rune(r)), s[5:], true
	}
	return buf, nil, false
}

// appendLine appends the line of the log for an entry. A part has the tag P, a whole line F. A line's end within the
// text would begin another line of the log, so it becomes a space. Docker never writes one there.
func appendLine(b []byte, e entry) []byte {
	text, whole := bytes.CutSuffix(e.text, []byte("\n"))
	if whole {
		text = bytes.TrimSuffix(text, []byte("\r")) // of a terminal
	}
	b = append(append(append(append(b, e.time...), ' '), e.stream...), ' ')
	if whole {
		b = append(b, "F "...)
	} else {
		b = append(b, "P "...)
	}
	from := len(b)
	b = append(b, text...)
	for at := b[from:]; ; {
		i := bytes.IndexByte(at, '\n')
		if i < 0 {
			break
		}
		at[i] = ' '
		at = at[i+1:]
	}
	return append(b, '\n')
}

// mark identifies a line: among the lines with a time and a stream, the line with this number. Numbers begin at 1. The
// zero mark is before the first line.
type mark struct {
	time, stream string
	number       int
}

// markOf returns the time and the stream of a line of a log.
func markOf(line []byte) (m mark, err error) {
	stamp, rest, _ := bytes.Cut(line, []byte(" "))
	stream, _, found := bytes.Cut(rest, []byte(" "))
	if !found {
		return mark{}, errors.New("the line has no time and stream")
	}
	return mark{time: string(stamp), stream: string(stream)}, nil
}

// same reports whether m counts the lines with this time and stream.
func (m mark) same(stamp, stream string) bool { return m.time == stamp && m.stream == stream }

// before reports whether a is before b. Both are times as Docker writes them. It is false if one of them is invalid.
func before(a, b string) bool {
	at, failed := time.Parse(time.RFC3339Nano, a)
	bt, err := time.Parse(time.RFC3339Nano, b)
	return errors.Join(failed, err) == nil && at.Before(bt)
}
