package podlog

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// line returns the i-th line of a log, one second after the line before.
func line(i int) string {
	return render(Entry{begin.Add(time.Duration(i) * time.Second), Stdout, false, fmt.Appendf(nil, "line %d", i)})
}

func lineRange(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		b.WriteString(line(i))
	}
	return b.String()
}

// outRange returns the output for lineRange.
func outRange(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func compressed(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.String()
}

// rotatedLog creates a log of 40 lines in four files, beside other files.
func rotatedLog(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "0.log")
	write(t, path+".20260301-120000.gz", compressed(lineRange(0, 10)))
	write(t, path+".20260301-120010.gz", compressed(lineRange(10, 20)))
	write(t, path+".20260301-120010", lineRange(10, 20)) // its compression has just ended
	write(t, path+".20260301-120020", lineRange(20, 30))
	write(t, path, lineRange(30, 40))
	write(t, path+".20260301-120030.gz.tmp", "being compressed")
	write(t, path+".bak", line(99))
	write(t, filepath.Join(filepath.Dir(path), "1.log"), line(99))
	return path
}

func TestRead(t *testing.T) {
	mixed := line(0) +
		"2026-03-01T12:00:01Z stderr P err\n" +
		"2026-03-01T12:00:02Z stdout P out\n" +
		"2026-03-01T12:00:03Z stderr F or\n" +
		"2026-03-01T12:00:04.5+02:00 stdout F put\n"
	tests := []struct {
		name, text string
		o          Options
		want       string
	}{
		{"empty", "", Options{}, ""},
		{"all", lineRange(0, 3), Options{}, outRange(0, 3)},
		{"streams and parts", mixed, Options{}, "line 0\nerror\noutput\n"},
		{"stdout", mixed, Options{Stream: Stdout}, "line 0\noutput\n"},
		{"stderr", mixed, Options{Stream: Stderr}, "error\n"},
		{
			"timestamps", mixed, Options{Timestamps: true},
			"2026-03-01T12:00:00.000000000Z line 0\n2026-03-01T12:00:01.000000000Z " +
				"error\n2026-03-01T12:00:02.000000000Z output\n",
		},
		{"tail", lineRange(0, 9), Options{Tail: new(int64(2))}, outRange(7, 9)},
		{"tail 0", lineRange(0, 9), Options{Tail: new(int64(0))}, ""},
		{"tail of more than there is", lineRange(0, 2), Options{Tail: new(int64(1 << 40))}, outRange(0, 2)},
		{"tail of a stream", mixed, Options{Tail: new(int64(1)), Stream: Stderr}, "error\n"},
		{"since", lineRange(0, 9), Options{Since: begin.Add(7 * time.Second)}, outRange(7, 9)},
		{"since within the tail", lineRange(0, 9), Options{Tail: new(int64(3)), Since: begin.Add(8 * time.Second)},
			outRange(8, 9)},
		{"limit", lineRange(0, 9), Options{LimitBytes: new(int64(10))}, "line 0\nlin"},
		{"limit of all there is", lineRange(0, 1), Options{LimitBytes: new(int64(7))}, "line 0\n"},
		{"limit not reached", lineRange(0, 1), Options{LimitBytes: new(int64(8))}, "line 0\n"},
		{"cut off in a part", line(0) + "2026-03-01T12:00:01Z stdout P par", Options{}, "line 0\npar"},
		{"cut off in the header", line(0) + "2026-03-01T12:0", Options{}, "line 0\n"},
		{"damaged", line(0) + "\x00\x00\x00\nnonsense\n" + line(1), Options{}, outRange(0, 2)},
		{
			"docker", `{"log":"a\n","stream":"stdout","time":"2026-03-01T12:00:00Z"}` + "\n" +
				`{"log":"b","stream":"stdout","time":"2026-03-01T12:00:01Z"}` + "\n" +
				`{"log":"c\n","stream":"stdout","time":"2026-03-01T12:00:02Z"}` + "\n",
			Options{Tail: new(int64(1))}, "bc\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "0.log")
			write(t, path, tt.text)
			var got bytes.Buffer
			if err := Read(t.Context(), path, tt.o, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadRotated(t *testing.T) {
	tests := []struct {
		name string
		o    Options
		want string
	}{
		{"all", Options{}, outRange(0, 40)},
		{"tail in the newest", Options{Tail: new(int64(10))}, outRange(30, 40)},
		{"tail in a rotated one", Options{Tail: new(int64(11))}, outRange(29, 40)},
		{"tail over three", Options{Tail: new(int64(25))}, outRange(15, 40)},
		{"tail in a compressed one", Options{Tail: new(int64(33))}, outRange(7, 40)},
		{"tail of more than there is", Options{Tail: new(int64(50))}, outRange(0, 40)},
		{"since", Options{Since: begin.Add(25 * time.Second)}, outRange(25, 40)},
		{"limit", Options{LimitBytes: new(int64(14))}, outRange(0, 2)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := rotatedLog(t)
			var got bytes.Buffer
			if err := Read(t.Context(), path, tt.o, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadOnlyFilesSince(t *testing.T) {
	path := rotatedLog(t)
	old := path + ".20260301-120000.gz"
	write(t, old, "not gzip: reading it would be noticed")
	if err := os.Chtimes(old, begin, begin); err != nil {
		t.Fatal(err)
	}
	var got, said bytes.Buffer
	o := Options{Since: begin.Add(11 * time.Second), Log: slog.New(slog.NewTextHandler(&said, nil))}
	if err := Read(t.Context(), path, o, &got); err != nil {
		t.Fatal(err)
	}
	if got.String() != outRange(11, 40) || said.Len() > 0 {
		t.Errorf("read %q, said %s", got.String(), said.String())
	}
}

func TestReadDamagedFiles(t *testing.T) {
	torn := compressed(lineRange(0, 10))
	tests := []struct {
		name, oldest string
		o            Options
		want         string
	}{
		{"not gzip", "nonsense", Options{}, outRange(10, 40)},
		{"not gzip, tail", "nonsense", Options{Tail: new(int64(35))}, outRange(10, 40)},
		{"torn", torn[:len(torn)-12], Options{Since: begin.Add(10 * time.Second)}, outRange(10, 40)},
		{"torn, tail", torn[:len(torn)-12], Options{Tail: new(int64(35))}, outRange(10, 40)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := rotatedLog(t)
			write(t, path+".20260301-120000.gz", tt.oldest)
			var got, said bytes.Buffer
			tt.o.Log = slog.New(slog.NewTextHandler(&said, nil))
			if err := Read(t.Context(), path, tt.o, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got.String()); diff != "" {
				t.Error(diff)
			}
			if n := strings.Count(said.String(), "skipped log files that cannot be read"); n != 1 {
				t.Errorf("said %s", said.String())
			}
		})
	}
}

func TestReadDocker(t *testing.T) {
	dir := t.TempDir()
	json := func(i int) string {
		at := begin.Add(time.Duration(i) * time.Second).Format(time.RFC3339Nano)
		return fmt.Sprintf(`{"log":"line %d\n","stream":"stdout","time":%q}`, i, at) + "\n"
	}
	id := strings.Repeat("0a", 32)
	log := filepath.Join(dir, "containers", id, id+"-json.log")
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, log+".10.gz", compressed(json(0)))
	write(t, log+".2.gz", compressed(json(1)))
	write(t, log+".1", json(2))
	write(t, log, json(3))
	link := filepath.Join(dir, "0.log")
	if err := os.Symlink(log, link); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := Read(t.Context(), link, Options{}, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(outRange(0, 4), got.String()); diff != "" {
		t.Error(diff)
	}
}

func TestReadErrors(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	write(t, path, lineRange(0, 3))
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	tests := []struct {
		name string
		ctx  context.Context
		path string
		o    Options
		is   error
		text string
	}{
		{"no log", t.Context(), filepath.Join(dir, "1.log"), Options{}, fs.ErrNotExist,
			"open log: open " + dir + "/1.log: file does not exist"},
		{"no directory", t.Context(), "/does/not/exist/0.log", Options{}, fs.ErrNotExist, "open log: "},
		{"no directory to follow", t.Context(), "/does/not/exist/0.log", Options{Follow: true}, fs.ErrNotExist,
			"watch log directory"},
		{"tail", t.Context(), path, Options{Tail: new(int64(-1))}, nil, "read log: tail -1 is negative"},
		{"limit", t.Context(), path, Options{LimitBytes: new(int64(0))}, nil,
			"read log: limit of 0 bytes is less than 1"},
		{"stream", t.Context(), path, Options{Stream: "stdin"}, nil,
			`read log: stream "stdin" is neither stdout nor stderr`},
		{"context", canceled, path, Options{}, context.Canceled, ""},
		{"context while following", canceled, path, Options{Follow: true}, context.Canceled, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := Read(tt.ctx, tt.path, tt.o, new(bytes.Buffer))
			if err == nil || tt.is != nil && !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %v, want %v with %q", err, tt.is, tt.text)
			}
		})
	}
}

// refusing is a writer whose reader has gone.
type refusing struct{}

var errGone = errors.New("gone")

func (refusing) Write([]byte) (int, error) { return 0, errGone }

func TestWriterFails(t *testing.T) {
	path := rotatedLog(t)
	for _, follow := range []bool{false, true} {
		if err := Read(t.Context(), path, Options{Follow: follow}, refusing{}); !errors.Is(err, errGone) {
			t.Errorf("follow %v: error %v", follow, err)
		}
	}
}

func TestDamageIsSaid(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	write(t, path, line(0)+"nonsense\n"+strings.Repeat("x", 2*maxLine)+"\n"+line(1))
	var got, said bytes.Buffer
	if err := Read(t.Context(), path, Options{Log: slog.New(slog.NewTextHandler(&said, nil))}, &got); err != nil {
		t.Fatal(err)
	}
	if got.String() != outRange(0, 2) || strings.Count(said.String(), "lines=2") != 1 {
		t.Errorf("read %q, said %s", got.String(), said.String())
	}
}

func BenchmarkRead(b *testing.B) {
	path := filepath.Join(b.TempDir(), "0.log")
	text := strings.Repeat(render(Entry{begin, Stdout, false, bytes.Repeat([]byte("x"), 100)}), 100_000)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	for name, o := range map[string]Options{"all": {}, "tail 10": {Tail: new(int64(10))}} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if err := Read(b.Context(), path, o, discard{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
