package event

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// journalName is the name of the file in the recorder's directory. A line is the whole state of one event. The last
// line with a seq counts.
const journalName = "events.jsonl"

// maxLine is the longest line that is read, in bytes. Written lines are shorter.
const maxLine = 64 << 10

// line is an event in the journal.
type line struct {
	Seq      uint64                 `json:"seq"`
	Rev      uint64                 `json:"rev"`
	Ref      corev1.ObjectReference `json:"ref"`
	Type     string                 `json:"type"`
	Reason   string                 `json:"reason"`
	Message  string                 `json:"message"`
	Count    int32                  `json:"count"`
	First    time.Time              `json:"first"`
	Last     time.Time              `json:"last"`
	Combined bool                   `json:"combined,omitempty"`

	Annotations map[string]string `json:"annotations,omitempty"`
}

// journal is the file. Only Run uses it.
type journal struct {
	path  string
	file  *os.File // open for appending, or nil
	size  int64    // length of the complete lines in bytes
	lines int      // all lines of the file, including outdated ones
	// damaged says that the file has lines that cannot be read. The next write replaces the file.
	damaged bool
}

// read returns the events in the journal, oldest change first, and the number of lines that it could not read. A
// missing journal is empty.
func (j *journal) read() ([]content, int, error) {
	f, err := os.Open(j.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read events: %w", err)
	}
	defer f.Close()

	bySeq := map[uint64]content{}
	bad := 0
	in := bufio.NewReaderSize(f, maxLine)
	for {
		text, err := in.ReadSlice('\n')
		atEnd := errors.Is(err, io.EOF)
		if atEnd && len(text) == 0 {
			break
		}
		c, ok := parseLine(text)
		switch {
		case errors.Is(err, bufio.ErrBufferFull): // the rest of a long line counts as another bad line
			bad++
		case err != nil && !atEnd:
			return nil, 0, fmt.Errorf("read events: %w", err)
		case !ok || atEnd: // a line without a newline was cut off
			bad++
		default:
			bySeq[c.seq] = c
		}
		j.lines++
		if atEnd {
			break
		}
	}
	j.damaged = bad > 0
	all := make([]content, 0, len(bySeq))
	for _, c := range bySeq {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b content) int { return cmp.Compare(a.rev, b.rev) })
	return all, bad, nil
}

func parseLine(text []byte) (content, bool) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil || l.Seq == 0 || l.Count < 1 || l.Reason == "" {
		return content{}, false
	}
	return content{
		group:    &group{groupKey: groupKey{ref: l.Ref, eventType: l.Type, reason: l.Reason}},
		message:  l.Message,
		combined: l.Combined,
		count:    l.Count,
		seq:      l.Seq,
		rev:      l.Rev,
		first:    l.First,
		last:     l.Last,

		annotations: l.Annotations,
	}, true
}

func encodeLine(w *json.Encoder, c *content) error {
	return w.Encode(line{
		Seq:      c.seq,
		Rev:      c.rev,
		Ref:      c.group.ref,
		Type:     c.group.eventType,
		Reason:   c.group.reason,
		Message:  c.message,
		Count:    c.count,
		First:    c.first,
		Last:     c.last,
		Combined: c.combined,

		Annotations: c.annotations,
	})
}

// append adds events to the file, all of them or none.
func (j *journal) append(events []content) error {
	if err := j.open(); err != nil {
		return err
	}
	out := &countingWriter{w: j.file}
	if err := writeLines(out, events); err != nil {
		// A cut-off line in the middle would damage the next one too.
		if cut := j.file.Truncate(j.size); cut != nil {
			j.damaged = true
		}
		return err
	}
	j.size += out.n
	j.lines += len(events)
	return nil
}

func (j *journal) open() error {
	if j.file != nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(j.path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(j.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	j.size, err = f.Seek(0, io.SeekEnd)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	j.file = f
	return nil
}

// replace writes a new file with events and renames it into place.
func (j *journal) replace(events []content) error {
	if err := os.MkdirAll(filepath.Dir(j.path), 0o700); err != nil {
		return err
	}
	next := j.path + ".tmp"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(writeLines(f, events), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(next, j.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next))
	}
	err = j.close() // the next append opens the new file
	j.lines, j.damaged = len(events), false
	return err
}

func (j *journal) close() error {
	if j.file == nil {
		return nil
	}
	err := j.file.Close()
	j.file = nil
	return err
}

func writeLines(w io.Writer, events []content) error {
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	for i := range events {
		if err := encodeLine(enc, &events[i]); err != nil {
			return err
		}
	}
	return out.Flush()
}

// countingWriter counts the bytes written to w.
type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
