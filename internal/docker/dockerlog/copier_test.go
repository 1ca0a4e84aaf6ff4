package dockerlog

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/base/logfile"
	"github.com/berth-run/berth/internal/base/logtest"
	"github.com/berth-run/berth/internal/base/roottest"
)

// engine writes a json-file as Docker does.
type engine struct {
	t        testing.TB
	path     string
	maxFiles int
	maxSize  int64
	file     *os.File
	size     int64
	// expected has every line that was written, as the log must have it.
	expected bytes.Buffer
	clock    time.Time
}

func newEngine(t testing.TB, maxSize int64, maxFiles int) *engine {
	e := &engine{t: t, path: filepath.Join(t.TempDir(), "c1", "c1-json.log"), maxSize: maxSize, maxFiles: maxFiles,
		clock: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	e.check(os.Mkdir(filepath.Dir(e.path), 0o700))
	t.Cleanup(func() {
		if e.file != nil {
			_ = e.file.Close()
		}
	})
	return e
}

func (e *engine) check(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

// tick returns the next time stamp.
func (e *engine) tick() string {
	e.clock = e.clock.Add(time.Microsecond)
	return e.clock.Format(time.RFC3339Nano)
}

// write writes one line of output, or a part of one.
func (e *engine) write(stamp, stream, text string) {
	e.t.Helper()
	line, err := json.Marshal(struct {
		Log    string `json:"log"`
		Stream string `json:"stream"`
		Time   string `json:"time"`
	}{text, stream, stamp})
	e.check(err)
	e.raw(append(line, '\n'))
	e.expected.Write(appendLine(nil, entry{[]byte(text), stream, stamp}))
}

func (e *engine) raw(line []byte) {
	e.t.Helper()
	if e.file != nil && e.maxSize > 0 && e.size >= e.maxSize {
		e.rotate()
	}
	if e.file == nil {
		var err error
		e.file, err = os.OpenFile(e.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		e.check(err)
		e.size = 0
	}
	_, err := e.file.Write(line)
	e.check(err)
	e.size += int64(len(line))
}

// rotate closes the file, and renames all of them: the oldest one is removed.
func (e *engine) rotate() {
	e.t.Helper()
	e.check(e.file.Close())
	e.file = nil
	name := func(age int) string { return fmt.Sprintf("%s.%d", e.path, age) }
	_ = os.Remove(name(e.maxFiles - 1))
	for age := e.maxFiles - 1; age > 1; age-- {
		if err := os.Rename(name(age-1), name(age)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			e.t.Fatal(err)
		}
	}
	e.check(os.Rename(e.path, name(1)))
}

// start runs a Copier for one container. stop ends it.
func start(t testing.TB, e *engine, target string) (c *Copier, stop func(), warnings *logtest.Lines) {
	t.Helper()
	warnings = &logtest.Lines{}
	c = New(slog.New(slog.NewTextHandler(warnings, &slog.HandlerOptions{Level: slog.LevelWarn})))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	c.Add(Container{ID: "c1", File: e.path, Log: target})
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return c, stop, warnings
}

func drain(t testing.TB, c *Copier) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.Drain(ctx, "c1"); err != nil {
		t.Fatal(err)
	}
}

// logOf returns the content of a log with its rotated files.
func logOf(t testing.TB, target string) string {
	t.Helper()
	files, err := filepath.Glob(target + ".*")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	var all bytes.Buffer
	for _, file := range append(files, target) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(content)
	}
	return all.String()
}

func expect(t testing.TB, e *engine, target string) {
	t.Helper()
	if got, want := logOf(t, target), e.expected.String(); got != want {
		t.Errorf("the log has %d bytes, want %d: first difference at %d", len(got), len(want), difference(got, want))
	}
}

func difference(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

func targetIn(t testing.TB) string { return filepath.Join(t.TempDir(), "pod", "app", "0.log") }

// output writes lines of both streams, some of them in parts that share a time.
func (e *engine) output(random *rand.Rand, lines int) {
	e.t.Helper()
	for range lines {
		stream, stamp := stdout, e.tick()
		if random.IntN(3) == 0 {
			stream = stderr
		}
		if random.IntN(10) == 0 {
			for range random.IntN(6) + 1 {
				e.write(stamp, stream, strings.Repeat("p", random.IntN(500)+1))
				if random.IntN(3) == 0 { // the other stream in between
					other := map[string]string{stdout: stderr, stderr: stdout}[stream]
					e.write(e.tick(), other, "between\n")
				}
			}
		}
		e.write(stamp, stream, strings.Repeat("x", random.IntN(200))+"\n")
	}
}

func TestFollowsRotation(t *testing.T) {
	e, target := newEngine(t, 10_000, 3), targetIn(t)
	c, _, warnings := start(t, e, target)
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		e.output(random, 15) // less than the files hold
		drain(t, c)
	}
	expect(t, e, target)
	if warnings.String() != "" {
		t.Errorf("warnings: %s", warnings.String())
	}
}

// The copying begins by itself, without a Drain.
func TestCopiesWhenFilesChange(t *testing.T) {
	e, target := newEngine(t, 1000, 3), targetIn(t)
	start(t, e, target)
	for range 20 {
		e.write(e.tick(), stdout, strings.Repeat("x", 100)+"\n")
		eventually.Nothing(t, func() string {
			got, _ := os.ReadFile(target)
			if string(got) == e.expected.String() {
				return ""
			}
			return fmt.Sprintf("the log has %q", got)
		})
	}
}

// A Copier may be killed at any byte of the log. The next one completes the log: no line is lost or doubled.
func TestResumesAtEveryByte(t *testing.T) {
	e, target := newEngine(t, 4000, 1000), targetIn(t)
	e.output(rand.New(rand.NewPCG(3, 4)), 60)
	c, stop, _ := start(t, e, target)
	drain(t, c)
	stop()
	expect(t, e, target)
	size := e.expected.Len()
	random := rand.New(rand.NewPCG(5, 6))
	for range 150 {
		cut := random.IntN(size)
		if err := os.Truncate(target, int64(cut)); err != nil {
			t.Fatal(err)
		}
		c, stop, warnings := start(t, e, target)
		drain(t, c)
		stop()
		if got := logOf(t, target); got != e.expected.String() {
			t.Fatalf("cut at %d of %d: differs at %d, %s", cut, size, difference(got, e.expected.String()),
				warnings.String())
		}
	}
}

// The end of the log is in a rotated file, which may be compressed, and a long line may lie across the rotation.
func TestResumesAfterRotationOfTheLog(t *testing.T) {
	for _, compress := range []bool{false, true} {
		for _, inParts := range []int{1, 3} { // where in the line of four parts the log was rotated
			t.Run(fmt.Sprintf("compressed %v after part %d", compress, inParts), func(t *testing.T) {
				e, target := newEngine(t, 0, 3), targetIn(t)
				e.write(e.tick(), stderr, "before\n")
				stamp := e.tick()
				var rotated int
				for part := range 4 {
					if part == inParts {
						rotated = e.expected.Len()
					}
					e.write(stamp, stdout, "part")
				}
				first := e.expected.Len()
				e.write(stamp, stdout, "end\n")
				e.write(e.tick(), stdout, "after\n")
				text := e.expected.Bytes()
				old := text[:rotated]
				name := target + ".20260301-120000"
				if compress {
					var packed bytes.Buffer
					w := gzip.NewWriter(&packed)
					_, _ = w.Write(old)
					_ = w.Close()
					name, old = name+logfile.Gzip, packed.Bytes()
				}
				if err := errors.Join(os.MkdirAll(filepath.Dir(target), 0o700), os.WriteFile(name, old, 0o600),
					os.WriteFile(target, text[rotated:first], 0o600)); err != nil {
					t.Fatal(err)
				}
				c, _, warnings := start(t, e, target)
				drain(t, c)
				got, err := os.ReadFile(target)
				if want := string(text[rotated:]); err != nil || string(got) != want {
					t.Errorf("%q, %v, want %q", got, err, want)
				}
				if warnings.String() != "" {
					t.Errorf("warnings: %s", warnings.String())
				}
			})
		}
	}
}

// Docker has removed the line that the log ends with. The log continues with the oldest line that Docker has, and the
// Copier warns.
func TestResumesWhereDockerHasRemovedLines(t *testing.T) {
	e, target := newEngine(t, 1000, 2), targetIn(t)
	e.write(e.tick(), stdout, "copied\n")
	c, stop, _ := start(t, e, target)
	drain(t, c)
	stop()
	for i := range 100 {
		e.write(e.tick(), stdout, fmt.Sprintln("line", i))
	}
	c, _, warnings := start(t, e, target)
	drain(t, c)
	got := strings.SplitAfter(logOf(t, target), "\n")
	want := strings.SplitAfter(e.expected.String(), "\n")
	kept := len(got) - 1 // without the first line
	if len(got) < 10 || got[0] != want[0] || !slices.Equal(got[1:], want[len(want)-kept:]) {
		t.Errorf("the log has %q", got)
	}
	if warnings.Count("may lack lines") == 0 {
		t.Errorf("warnings: %s", warnings.String())
	}
}

// A Copier that lags loses whole files, never lines within one, and warns.
func TestLagLosesWholeFiles(t *testing.T) {
	e, target := newEngine(t, 1000, 2), targetIn(t)
	e.write(e.tick(), stdout, "line 0\n")
	s := source{path: e.path}
	c := newTail(Container{ID: "c1", File: e.path, Log: target}, slog.New(slog.DiscardHandler))
	c.source = s
	if err := c.copy(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		e.write(e.tick(), stdout, fmt.Sprintln("line", i+1))
	}
	warnings := &logtest.Lines{}
	c.log = slog.New(slog.NewTextHandler(warnings, nil))
	if err := c.copy(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.target.close()
	c.source.close()
	got := strings.SplitAfter(logOf(t, target), "\n")
	want := strings.SplitAfter(e.expected.String(), "\n")
	head := 0
	for head < len(got) && got[head] == want[head] {
		head++
	}
	tail := len(got) - head
	if head < 10 || tail < 10 || len(got) == len(want) || !slices.Equal(got[head:], want[len(want)-tail:]) {
		t.Errorf("%d lines from the beginning and %d others of %d: %q", head, tail, len(want), got)
	}
	if warnings.Count("the log lacks lines") == 0 {
		t.Errorf("warnings: %s", warnings.String())
	}
}

// Docker truncates its file if it may have only one.
func TestTruncatedFileIsReadFromItsStart(t *testing.T) {
	e, target := newEngine(t, 0, 1), targetIn(t)
	e.write(e.tick(), stdout, "a line that is longer than the next one\n")
	c, _, _ := start(t, e, target)
	drain(t, c)
	if err := os.Truncate(e.path, 0); err != nil {
		t.Fatal(err)
	}
	e.write(e.tick(), stdout, "b\n")
	drain(t, c)
	expect(t, e, target)
}

// Damaged lines are skipped and counted. They do not end the copying.
func TestDamagedLinesAreSkippedAndCounted(t *testing.T) {
	e, target := newEngine(t, 0, 2), targetIn(t)
	e.write(e.tick(), stdout, "one\n")
	e.raw([]byte("\x00\x00\x00\n"))
	e.raw([]byte(strings.Repeat("x", 3*longest) + "\n"))
	e.write(e.tick(), stdout, "two\n")
	e.raw([]byte(`{"log":"dockerd was killed`))
	c, _, warnings := start(t, e, target)
	drain(t, c)
	expect(t, e, target)
	e.rotate()
	e.write(e.tick(), stdout, "three\n")
	drain(t, c)
	expect(t, e, target)
	if warnings.Count("lines=2") == 0 || warnings.Count("lines=1") == 0 {
		t.Errorf("warnings: %s", warnings.String())
	}
}

// Another process renames the log and asks for a new file while output flows. The files together have every line once.
func TestReopenLosesNoLine(t *testing.T) {
	e, target := newEngine(t, 1<<20, 100), targetIn(t)
	if err := Create(target); err != nil {
		t.Fatal(err)
	}
	c, _, _ := start(t, e, target)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 20_000 {
			e.write(e.tick(), stdout, fmt.Sprintln("line", i))
		}
	}()
	for i := 0; ; i++ {
		drain(t, c)
		if err := os.Rename(target, fmt.Sprintf("%s.20260301-12%02d%02d", target, i/60, i%60)); err != nil {
			t.Fatal(err)
		}
		if err := c.Reopen("c1"); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
			drain(t, c)
			expect(t, e, target)
			t.Logf("reopened %d times", i+1)
			return
		default:
		}
	}
}

func TestReopenOfUnknownContainerFails(t *testing.T) {
	c := New(slog.New(slog.DiscardHandler))
	if err := c.Reopen("none"); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("error %v", err)
	}
	if err := c.Drain(t.Context(), "none"); err != nil {
		t.Error(err)
	}
}

// The disk of the log is full. The lines wait in Docker's files, and Drain returns an error.
func TestLinesWaitWhileTheDiskIsFull(t *testing.T) {
	roottest.Need(t, "mounting")
	dir := filepath.Join(t.TempDir(), "small")
	if err := errors.Join(os.Mkdir(dir, 0o700), unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	e, target := newEngine(t, 0, 2), filepath.Join(dir, "pod", "app", "0.log")
	c, _, warnings := start(t, e, target)
	e.output(rand.New(rand.NewPCG(7, 8)), 1000)
	if err := c.Drain(t.Context(), "c1"); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("error %v", err)
	}
	if warnings.Count("retrying every second") == 0 {
		t.Errorf("warnings: %s", warnings.String())
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size=16m"); err != nil {
		t.Fatal(err)
	}
	drain(t, c)
	expect(t, e, target)
}

// A container with a hostPath on its logs replaces its log by a link. The Copier writes nothing through the link.
func TestLogMustBeAFile(t *testing.T) {
	e, target := newEngine(t, 0, 2), targetIn(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := errors.Join(os.MkdirAll(filepath.Dir(target), 0o700), os.Symlink(secret, target)); err != nil {
		t.Fatal(err)
	}
	if err := Create(target); err == nil {
		t.Error("made a log through a link")
	}
	c, _, _ := start(t, e, target)
	e.write(e.tick(), stdout, "line\n")
	if err := c.Drain(t.Context(), "c1"); err == nil {
		t.Error("wrote a log through a link")
	}
	if _, err := os.Stat(secret); err == nil {
		t.Error("the link was followed")
	}
}

// Drain ends with its context, and with the container's removal.
func TestDrainEndsWithItsContextOrTheContainer(t *testing.T) {
	c := New(slog.New(slog.DiscardHandler)) // it does not run
	c.Add(Container{ID: "c1", File: "/none/c1-json.log", Log: "/none/pod/app/0.log"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := c.Drain(ctx, "c1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	e := newEngine(t, 0, 2)
	c, _, _ = start(t, e, targetIn(t))
	drain(t, c)
	c.Remove("c1")
	if err := c.Drain(t.Context(), "c1"); err != nil {
		t.Error(err)
	}
}

func BenchmarkCopy(b *testing.B) {
	e, target := newEngine(b, 0, 2), targetIn(b)
	for range 100_000 {
		e.write(e.tick(), stdout, strings.Repeat("x", 100)+"\n")
	}
	b.SetBytes(e.size)
	for b.Loop() {
		if err := os.RemoveAll(filepath.Dir(target)); err != nil {
			b.Fatal(err)
		}
		t := newTail(Container{ID: "c1", File: e.path, Log: target}, slog.New(slog.DiscardHandler))
		if err := t.copy(b.Context()); err != nil {
			b.Fatal(err)
		}
		t.target.close()
		t.source.close()
	}
}
