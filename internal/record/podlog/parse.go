package podlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Stream is the stream of a container's line.
type Stream string

// The streams as in the CRI log format.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// Entry is one line of a log file: a line of the container, or a part of one.
type Entry struct {
	Time   time.Time
	Stream Stream
	// Partial says that the container's line continues in the stream's next entry.
	Partial bool
	// Content is the container's output without the newline. It may alias the parsed line.
	Content []byte
}

// Parse reads one line of a log file, with or without its newline:
//
//	2026-03-01T12:00:00.000000000Z stdout F content    (CRI; the tag P marks a part)
//	{"log":"content\n","stream":"stdout","time":"..."}  (Docker's json-file; a part has no \n)
func Parse(line []byte) (Entry, error) {
	line = bytes.TrimSuffix(line, []byte("\n"))
	if len(line) > 0 && line[0] == '{' {
		return parseJSON(line)
	}
	return parseCRI(line)
}

// parseCRI parses the format of CRI logs (design-proposals-archive, node/kubelet-cri-logging.md). It ignores tags after
// the first, which is followed by a colon: they are reserved for later versions.
func parseCRI(line []byte) (Entry, error) {
	stamp, rest, _ := bytes.Cut(line, []byte(" "))
	stream, rest, _ := bytes.Cut(rest, []byte(" "))
	tags, content, _ := bytes.Cut(rest, []byte(" "))
	var e Entry
	var err error
	if e.Time, err = time.Parse(time.RFC3339Nano, string(stamp)); err != nil {
		return Entry{}, fmt.Errorf("parse log line: timestamp %.40q is not RFC 3339", stamp)
	}
	if e.Stream, err = parseStream(string(stream)); err != nil {
		return Entry{}, err
	}
	tag, _, _ := bytes.Cut(tags, []byte(":"))
	switch string(tag) {
	case "P":
		e.Partial = true
	case "F":
	default:
		return Entry{}, fmt.Errorf("parse log line: tag %.20q is neither P nor F", tag)
	}
	e.Content = content
	return e, nil
}

func parseJSON(line []byte) (Entry, error) {
	var l struct {
		Log    *string   `json:"log"`
		Stream string    `json:"stream"`
		Time   time.Time `json:"time"`
	}
	if err := json.Unmarshal(line, &l); err != nil {
		return Entry{}, fmt.Errorf("parse log line: %w", err)
	}
	if l.Log == nil || l.Time.IsZero() {
		return Entry{}, errors.New("parse log line: log or time is missing")
	}
	stream, err := parseStream(l.Stream)
	if err != nil {
		return Entry{}, err
	}
	content, whole := bytes.CutSuffix([]byte(*l.Log), []byte("\n"))
	return Entry{Time: l.Time, Stream: stream, Partial: !whole, Content: content}, nil
}

func parseStream(name string) (Stream, error) {
	switch name {
	case "stdout":
		return Stdout, nil
	case "stderr":
		return Stderr, nil
	}
	return "", fmt.Errorf("parse log line: stream %.20q is neither stdout nor stderr", name)
}
