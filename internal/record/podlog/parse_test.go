package podlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	const stamp = "2026-03-01T12:00:00.123456789Z "
	tests := []struct {
		name, line string
		want       Entry
		err        string
	}{
		{"full", stamp + "stdout F hello world", Entry{at, Stdout, false, []byte("hello world")}, ""},
		{"with newline", stamp + "stderr F a b\n", Entry{at, Stderr, false, []byte("a b")}, ""},
		{"partial", stamp + "stdout P part", Entry{at, Stdout, true, []byte("part")}, ""},
		{"empty content", stamp + "stdout F ", Entry{at, Stdout, false, []byte{}}, ""},
		{"no content", stamp + "stdout F", Entry{Time: at, Stream: Stdout}, ""},
		{"spaces stay", stamp + "stdout F   x  ", Entry{at, Stdout, false, []byte("  x  ")}, ""},
		{"more tags", stamp + "stdout P:TAG:MORE x", Entry{at, Stdout, true, []byte("x")}, ""},
		{"other zone", "2026-03-01T14:00:00.123456789+02:00 stdout F x", Entry{at, Stdout, false, []byte("x")}, ""},
		{"not a time", "yesterday stdout F x", Entry{}, `timestamp "yesterday" is not RFC 3339`},
		{"no such stream", stamp + "stdin F x", Entry{}, `stream "stdin" is neither stdout nor stderr`},
		{"no such tag", stamp + "stdout X x", Entry{}, `tag "X" is neither P nor F`},
		{"torn", "2026-03-01T12:00:00.123456789Z std", Entry{}, `stream "std" is neither`},
		{"empty", "", Entry{}, `timestamp "" is not`},
		{
			"json", `{"log":"a \"b\"\n","stream":"stderr","time":"2026-03-01T12:00:00.123456789Z"}`,
			Entry{at, Stderr, false, []byte(`a "b"`)}, "",
		},
		{
			"json partial",
			`{"log":"abc","stream":"stdout","attrs":{"tag":"x"},"time":"2026-03-01T12:00:00.123456789Z"}`,
			Entry{at, Stdout, true, []byte("abc")}, "",
		},
		{"json torn", `{"log":"abc","str`, Entry{}, "unexpected end of JSON input"},
		{"json without time", `{"log":"abc","stream":"stdout"}`, Entry{}, "log or time is missing"},
		{"json without log", `{"stream":"stdout","time":"2026-03-01T12:00:00Z"}`, Entry{}, "log or time is missing"},
		{"json without stream", `{"log":"","time":"2026-03-01T12:00:00Z"}`, Entry{}, `stream "" is neither`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse([]byte(tt.line))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if text := fmt.Sprint(err); tt.err == "" && err != nil || !strings.Contains(text, tt.err) {
				t.Errorf("error %q, want %q", text, tt.err)
			}
		})
	}
}

// render returns the entry as a CRI line.
func render(e Entry) string {
	tag := "F"
	if e.Partial {
		tag = "P"
	}
	return fmt.Sprintf("%s %s %s %s\n", e.Time.Format(time.RFC3339Nano), e.Stream, tag, e.Content)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("2026-03-01T12:00:00.123456789Z stdout F hello"))
	f.Add([]byte("2026-03-01T12:00:00Z stderr P:x \xff\x00"))
	f.Add([]byte(`{"log":"a\n","stream":"stderr","time":"2026-03-01T12:00:00Z"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := Parse(line)
		if err != nil {
			if e.Content != nil || e.Stream != "" {
				t.Fatalf("an entry %+v beside the error %v", e, err)
			}
			return
		}
		if bytes.ContainsRune(e.Content, '\n') {
			return // a JSON string may hold what no CRI line can
		}
		again, err := Parse([]byte(render(e)))
		if err != nil || !again.Time.Equal(e.Time) || again.Stream != e.Stream || again.Partial != e.Partial ||
			!bytes.Equal(again.Content, e.Content) {
			t.Fatalf("%+v became %+v, %v", e, again, err)
		}
	})
}

// FuzzLines checks that the lines of a file do not depend on the sizes of the reads.
func FuzzLines(f *testing.F) {
	f.Add([]byte("one\ntwo\n\nthree"))
	f.Add([]byte("\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		read := func(src io.Reader) (all []string, rest string) {
			l := newLines(src)
			for {
				line, err := l.next()
				if err != nil {
					return all, string(l.rest())
				}
				all = append(all, string(line))
			}
		}
		got, rest := read(iotest.OneByteReader(bytes.NewReader(text)))
		want := strings.Split(string(text), "\n")
		if diff := cmp.Diff(want, append(got, rest)); diff != "" {
			t.Fatal(diff)
		}
		whole, wholeRest := read(bytes.NewReader(text))
		if diff := cmp.Diff(want, append(whole, wholeRest)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestLineTooLong(t *testing.T) {
	text := "first\n" + strings.Repeat("x", 5*maxLine) + "\nlast\n" + strings.Repeat("y", 2*maxLine)
	l := newLines(strings.NewReader(text))
	var got []string
	for {
		line, err := l.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(line))
	}
	if diff := cmp.Diff([]string{"first", "last"}, got); diff != "" {
		t.Error(diff)
	}
	if rest := l.rest(); l.damaged != 2 || len(rest) != 0 {
		t.Errorf("%d damaged lines, rest of %d bytes", l.damaged, len(rest))
	}
}

func TestJoin(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	e := func(s int, stream Stream, partial bool, content string) Entry {
		return Entry{at(s), stream, partial, []byte(content)}
	}
	big := strings.Repeat("x", maxLine/2)
	tests := []struct {
		name       string
		in         []Entry
		want, rest []piece
	}{
		{
			"full lines", []Entry{e(1, Stdout, false, "a"), e(2, Stderr, false, "b")},
			[]piece{{e(1, Stdout, false, "a"), false}, {e(2, Stderr, false, "b"), false}}, nil,
		},
		{
			"parts", []Entry{e(1, Stdout, true, "a"), e(2, Stdout, true, "b"), e(3, Stdout, false, "c"),
				e(4, Stdout, false, "d")},
			[]piece{{e(1, Stdout, false, "abc"), false}, {e(4, Stdout, false, "d"), false}}, nil,
		},
		{
			"interleaved",
			[]Entry{e(1, Stdout, true, "a"), e(2, Stderr, true, "x"), e(3, Stdout, false, "b"),
				e(4, Stderr, false, "y")},
			[]piece{{e(1, Stdout, false, "ab"), false}, {e(2, Stderr, false, "xy"), false}}, nil,
		},
		{
			"cut off", []Entry{e(1, Stdout, true, "a"), e(2, Stderr, true, "x")}, nil,
			[]piece{{e(1, Stdout, true, "a"), false}, {e(2, Stderr, true, "x"), false}},
		},
		{
			"too long", []Entry{e(1, Stdout, true, big), e(2, Stdout, true, big), e(3, Stdout, false, "end")},
			[]piece{{e(1, Stdout, true, big+big), false}, {e(2, Stdout, false, "end"), true}}, nil,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var j joiner
			var got []string
			for _, e := range tt.in {
				if p, ok := j.add(e); ok {
					got = append(got, brief(p)...)
				}
			}
			if diff := cmp.Diff(brief(tt.want...), got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(brief(tt.rest...), brief(j.rest()...)); diff != "" {
				t.Errorf("rest: %s", diff)
			}
		})
	}
}

// brief describes pieces without the length of their content.
func brief(pieces ...piece) []string {
	var all []string
	for _, p := range pieces {
		all = append(all, fmt.Sprintf("%d %s partial=%t continued=%t %d bytes: %.20s",
			p.Time.Unix(), p.Stream, p.Partial, p.continued, len(p.Content), p.Content))
	}
	return all
}
