package dockerlog

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const at = "2026-03-01T12:00:00.000000001Z"

func TestParseReadsDockersLines(t *testing.T) {
	of := func(text, stream string) entry { return entry{[]byte(text), stream, at} }
	for name, tt := range map[string]struct {
		line string
		want entry
		fast bool
	}{
		"line": {`{"log":"one\n","stream":"stdout","time":"` + at + `"}`, of("one\n", "stdout"), true},
		"part": {`{"log":"one","stream":"stderr","time":"` + at + `"}`, of("one", "stderr"), true},
		"escapes": {`{"log":"\"\\\u0009\u003c\r\n","stream":"stdout","time":"` + at + `"}`, of("\"\\\t<\r\n", "stdout"),
			true},
		"other characters": {`{"log":"ä世🙂\u2028\ufffd\n","stream":"stdout","time":"` + at + `"}`,
			of("ä世🙂\u2028\ufffd\n", "stdout"), true},
		"pair of halves": {`{"log":"\ud83d\ude42\n","stream":"stdout","time":"` + at + `"}`, of("🙂\n", "stdout"),
			false},
		"labels": {`{"log":"one\n","stream":"stdout","attrs":{"tag":"x"},"time":"` + at + `"}`, of("one\n", "stdout"),
			false},
		"line that contains the form of a line": {
			`{"log":"{\"log\":\"x\\n\",\"stream\":\"stdout\"}\n","stream":"stdout","time":"` + at + `"}`,
			of(`{"log":"x\n","stream":"stdout"}`+"\n", "stdout"), true},
		"after a line that dockerd could not complete": {
			`{"log":"torn{"log":"one\n","stream":"stdout","time":"` + at + `"}`, of("one\n", "stdout"), false},
		"after a line without its time": {
			`{"log":"torn\n","stream":"stdout","ti{"log":"one\n","stream":"stdout","time":"` + at + `"}`,
			of("one\n", "stdout"), false},
	} {
		t.Run(name, func(t *testing.T) {
			got, buf, err := parse([]byte("before"), []byte(tt.line))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got, cmp.AllowUnexported(entry{})); d != "" {
				t.Errorf("entry (-want +got):\n%s", d)
			}
			if !bytes.HasPrefix(buf, []byte("before")) {
				t.Errorf("the buffer is %q", buf)
			}
			if _, _, fast := parseFast(nil, []byte(tt.line)); fast != tt.fast {
				t.Errorf("read fast: %v", fast)
			}
		})
	}
}

func TestParseRefusesDamagedLines(t *testing.T) {
	for _, line := range []string{
		"", "x", `{"log":"torn`, `{"log":"one\n"}`, `{"log":"one\n","stream":"stdin","time":"` + at + `"}`,
		`{"log":"one\n","stream":"stdout","time":"yesterday"}`, `{"log":"one\n","stream":"stdout","time":"` + at,
		`{"log":"\x\n","stream":"stdout","time":"` + at + `"}`, "\x00\x00\x00",
	} {
		if e, _, err := parse(nil, []byte(line)); err == nil {
			t.Errorf("%q: %+v", line, e)
		}
	}
}

func TestAppendLineTagsParts(t *testing.T) {
	for text, want := range map[string]string{
		"one\n":                        at + " stdout F one\n",
		"of a tty\r\n":                 at + " stdout F of a tty\n",
		"part":                         at + " stdout P part\n",
		"part\r":                       at + " stdout P part\r\n",
		"\n":                           at + " stdout F \n",
		"forged\n2026 stdout F line\n": at + " stdout F forged 2026 stdout F line\n",
	} {
		if got := string(appendLine(nil, entry{[]byte(text), stdout, at})); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// parseFast returns the same entry as package json. Every line becomes one line of the log, and markOf can read its
// mark.
func FuzzParse(f *testing.F) {
	for _, line := range []string{
		`{"log":"one\n","stream":"stdout","time":"` + at + `"}`,
		`{"log":"\u0000\"\\","stream":"stderr","time":"` + at + `"}`,
		`{"log":"a{"log":"one\n","stream":"stdout","time":"` + at + `"}`,
		`{"log":"\ud83d\ude42","stream":"stdout","time":"` + at + `"}`,
		`{"log":"x","stream":"stdout","attrs":{"a":"b"},"time":"` + at + `"}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if e, _, ok := parseFast(nil, line); ok {
			var want struct{ Log, Stream, Time string }
			if err := json.Unmarshal(line, &want); err != nil {
				t.Fatalf("%q was read, but is no JSON: %v", line, err)
			}
			if string(e.text) != want.Log || e.stream != want.Stream || e.time != want.Time {
				t.Fatalf("%q: %+v, want %+v", line, e, want)
			}
		}
		e, _, err := parse(nil, line)
		if err != nil {
			return
		}
		out := appendLine(nil, e)
		if bytes.IndexByte(out, '\n') != len(out)-1 {
			t.Fatalf("%q became %q", line, out)
		}
		m, err := markOf(out)
		if err != nil || !m.same(e.time, e.stream) {
			t.Fatalf("%q: mark %+v, %v", out, m, err)
		}
		if _, err := time.Parse(time.RFC3339Nano, m.time); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	line := []byte(`{"log":"` + strings.Repeat("x", 200) + `\n","stream":"stdout","time":"` + at + `"}`)
	b.SetBytes(int64(len(line)))
	var buf []byte
	for b.Loop() {
		var err error
		if _, buf, err = parse(buf[:0], line); err != nil {
			b.Fatal(err)
		}
	}
}
