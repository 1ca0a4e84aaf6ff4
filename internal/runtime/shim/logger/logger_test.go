package logger

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/base/logfile"
	"github.com/berth-run/berth/internal/base/roottest"
)

// killedEnv makes the test binary log a container until it is killed. Its value is the directory.
const killedEnv = "BERTH_TEST_LOGGER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(killedEnv); dir != "" {
		p := place0(dir)
		l := Reopen(p.log, p.limits)
		for name, paths := range p.streams() {
			if _, err := l.Continue(name, paths); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		select {}
	}
	os.Exit(m.Run())
}

// places are the files of a container's log in a test.
type places struct{ dir, log, limits string }

func place0(dir string) places {
	return places{dir, filepath.Join(dir, "logs", "0.log"), filepath.Join(dir, "limits")}
}

func (p places) streams() map[string]Paths {
	of := func(name string) Paths {
		return Paths{Pipe: filepath.Join(p.dir, name), Copy: filepath.Join(p.dir, name+".copy")}
	}
	return map[string]Paths{"stdout": of("stdout"), "stderr": of("stderr")}
}

// prepare makes the FIFOs of a container and its limits.
func prepare(t testing.TB, limits logfile.Limits) places {
	t.Helper()
	return prepareIn(t, t.TempDir(), limits)
}

func prepareIn(t testing.TB, dir string, limits logfile.Limits) places {
	t.Helper()
	p := place0(dir)
	for _, paths := range p.streams() {
		for _, path := range []string{paths.Pipe, paths.Copy} {
			if err := unix.Mkfifo(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := limits.Write(p.limits); err != nil {
		t.Fatal(err)
	}
	return p
}

// mountTmpfs makes a directory and mounts a tmpfs on it for the time of the test.
func mountTmpfs(t testing.TB, dir, options string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(dir, 0o700), unix.Mount("tmpfs", dir, "tmpfs", 0, options)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

// start starts a stream and opens its FIFO for the container.
func start(t testing.TB, l *Log, p places, name string) (*Stream, *os.File) {
	t.Helper()
	s, err := l.Start(name, p.streams()[name])
	if err != nil {
		t.Fatal(err)
	}
	container, err := os.OpenFile(p.streams()[name].Pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Drop()
		<-s.Done()
		s.CloseCopy()
		_ = container.Close()
	})
	return s, container
}

func openLog(t testing.TB, p places) *Log {
	t.Helper()
	l, err := Open(p.log, p.limits)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func end(t testing.TB, s *Stream) {
	t.Helper()
	s.End()
	select {
	case <-s.Done():
	case <-time.After(time.Minute):
		t.Fatal("the stream does not end")
	}
}

func put(t testing.TB, w io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
}

// files returns the files of the log, oldest first.
func (p places) files(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(p.log + ".*")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	return append(files, p.log)
}

// output returns the lines and parts of a stream in the log, joined.
func (p places) output(t testing.TB, stream string) string {
	t.Helper()
	var all bytes.Buffer
	for _, file := range p.files(t) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(content) {
			fields := bytes.SplitN(line, []byte(" "), 4)
			if len(fields) != 4 || line[len(line)-1] != '\n' {
				t.Fatalf("%s has a broken line %.100q", file, line)
			}
			if _, err := time.Parse(time.RFC3339Nano, string(fields[0])); err != nil {
				t.Fatal(err)
			}
			if string(fields[1]) != stream {
				continue
			}
			text := fields[3]
			if string(fields[2]) == "P" {
				text = text[:len(text)-1]
			}
			all.Write(text)
		}
	}
	return all.String()
}

// Both streams are in one log, with the rest of an unfinished line at the end.
func TestBothStreams(t *testing.T) {
	p := prepare(t, logfile.Limits{})
	l := openLog(t, p)
	out, stdout := start(t, l, p, "stdout")
	err, stderr := start(t, l, p, "stderr")
	put(t, stdout, "one\ntwo\nunfinished")
	put(t, stderr, "error\n")
	eventually.True(t, "lines are in the log", func() bool {
		return p.output(t, "stdout") == "one\ntwo\n" && p.output(t, "stderr") == "error\n"
	})
	end(t, out)
	end(t, err)
	if got := p.output(t, "stdout"); got != "one\ntwo\nunfinished" {
		t.Errorf("standard output in the log: %q", got)
	}
	if l.file != nil {
		t.Error("the log is open after the end of its streams")
	}
}

// No file exceeds the limit, unless a single line does. No byte is lost, and there are never more files than allowed.
func TestRotationWhereBytesAreWritten(t *testing.T) {
	limits := logfile.Limits{MaxSize: 100 << 10, MaxFiles: 1000}
	p := prepare(t, limits)
	out, stdout := start(t, openLog(t, p), p, "stdout")
	var want strings.Builder
	random := rand.New(rand.NewPCG(1, 2))
	for want.Len() < 4<<20 {
		line := strings.Repeat("x", random.IntN(300)) + fmt.Sprintln(want.Len())
		want.WriteString(line)
		put(t, stdout, line)
	}
	end(t, out)
	if p.output(t, "stdout") != want.String() {
		t.Error("the output in the log differs")
	}
	files := p.files(t)
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.Size() >= limits.MaxSize {
			t.Errorf("%s: %d bytes, %v", file, info.Size(), err)
		}
	}
	if least := want.Len() / int(limits.MaxSize); len(files) <= least {
		t.Errorf("%d files", len(files))
	}
}

func TestLineBeyondTheLimit(t *testing.T) {
	p := prepare(t, logfile.Limits{MaxSize: 1000, MaxFiles: 3})
	out, stdout := start(t, openLog(t, p), p, "stdout")
	long := strings.Repeat("x", 2000) + "\n"
	put(t, stdout, "a\n"+long+"b\n")
	end(t, out)
	if got := p.output(t, "stdout"); got != "a\n"+long+"b\n" || len(p.files(t)) != 3 {
		t.Errorf("files %q have %.20q", p.files(t), got)
	}
}

// The oldest files go, also compressed ones. Changed limits apply from the next rotation on.
func TestNumberOfFiles(t *testing.T) {
	p := prepare(t, logfile.Limits{MaxSize: 1000, MaxFiles: 3})
	if err := os.MkdirAll(filepath.Dir(p.log), 0o700); err != nil {
		t.Fatal(err)
	}
	old := []string{"20260301-120000.gz", "20260301-120001.gz", "20260301-120002"}
	for _, stamp := range old {
		if err := os.WriteFile(p.log+"."+stamp, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, stdout := start(t, openLog(t, p), p, "stdout")
	line := strings.Repeat("x", 600) + "\n"
	put(t, stdout, line+line)
	eventually.True(t, "three files", func() bool { return len(p.files(t)) == 3 })
	if files := p.files(t); filepath.Base(files[0]) != "0.log.20260301-120002" {
		t.Errorf("files %q, want the newest rotated one and the next", files)
	}
	if err := (logfile.Limits{MaxSize: 2000, MaxFiles: 2}).Write(p.limits); err != nil {
		t.Fatal(err)
	}
	put(t, stdout, line+line+line)
	end(t, out)
	files := p.files(t)
	if info, err := os.Stat(p.log); err != nil || len(files) != 2 || info.Size() < 1500 {
		t.Errorf("files %q, the current one has %d bytes, %v", files, info.Size(), err)
	}
}

// Another process renames or removes the file. The next line is in a new one.
func TestRenamedFileIsFollowed(t *testing.T) {
	p := prepare(t, logfile.Limits{})
	out, stdout := start(t, openLog(t, p), p, "stdout")
	put(t, stdout, "one\n")
	eventually.True(t, "the line is in the log", func() bool { return p.output(t, "stdout") == "one\n" })
	if err := os.Rename(p.log, p.log+".20260301-120000"); err != nil {
		t.Fatal(err)
	}
	put(t, stdout, "two\n")
	end(t, out)
	if got := p.output(t, "stdout"); got != "one\ntwo\n" || len(p.files(t)) != 2 {
		t.Errorf("files %q have %q", p.files(t), got)
	}
}

// A container with a hostPath on its log's directory replaces the directory by a link. The log continues where it was,
// and nothing outside is written, created or renamed.
func TestDirectoryReplacedByLink(t *testing.T) {
	p := prepare(t, logfile.Limits{MaxSize: 200, MaxFiles: 3})
	outside := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(outside, []byte("outside"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, container := start(t, openLog(t, p), p, "stdout")
	aside := filepath.Dir(p.log) + ".aside"
	if err := errors.Join(os.Rename(filepath.Dir(p.log), aside),
		os.Symlink(filepath.Dir(outside), filepath.Dir(p.log))); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		put(t, container, "line that makes the log longer than its limit\n")
	}
	end(t, s)
	entries, err := os.ReadDir(filepath.Dir(outside))
	if content, _ := os.ReadFile(outside); string(content) != "outside" || err != nil || len(entries) != 1 {
		t.Errorf("outside are %v with %q, %v", entries, content, err)
	}
	if content, err := os.ReadFile(filepath.Join(aside, "0.log")); bytes.Count(content, []byte("\n")) != 20 {
		t.Errorf("the log has %q, %v", content, err)
	}
}

// A container could make its log a link to a file of the machine, or a FIFO that blocks the shim.
func TestOnlyRegularFilesAreWritten(t *testing.T) {
	p := prepare(t, logfile.Limits{})
	secret := filepath.Join(p.dir, "secret")
	kinds := map[string]func() error{
		"link": func() error { return os.Symlink(secret, p.log) },
		"FIFO": func() error { return unix.Mkfifo(p.log, 0o600) },
	}
	if err := os.MkdirAll(filepath.Dir(p.log), 0o700); err != nil {
		t.Fatal(err)
	}
	for kind, place := range kinds {
		if err := place(); err != nil {
			t.Fatal(err)
		}
		if l, err := Open(p.log, p.limits); err == nil {
			l.Close()
			t.Errorf("opened a %s", kind)
		}
		if err := os.Remove(p.log); err != nil {
			t.Fatal(err)
		}
	}
	out, stdout := start(t, openLog(t, p), p, "stdout")
	if err := errors.Join(os.Remove(p.log), os.Symlink(secret, p.log)); err != nil {
		t.Fatal(err)
	}
	put(t, stdout, "line\n")
	end(t, out)
	if _, err := os.Stat(secret); err == nil {
		t.Error("a link was followed")
	}
}

// The disk is full: the container goes on. Whole lines are in the log, and logging continues when there is room.
func TestFullDisk(t *testing.T) {
	roottest.Need(t, "mounting")
	p := prepare(t, logfile.Limits{})
	mountTmpfs(t, filepath.Dir(p.log), "size=256k")
	l := openLog(t, p)
	out, stdout := start(t, l, p, "stdout")
	line := strings.Repeat("x", 999) + "\n"
	for range 1000 {
		put(t, stdout, line)
	}
	dropped := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.dropped
	}
	eventually.True(t, "all output is written or dropped", func() bool {
		return dropped()+strings.Count(p.output(t, "stdout"), line) == 1000
	})
	if lost := dropped(); lost < 700 || lost > 800 {
		t.Errorf("%d lines were dropped", lost)
	}
	if err := os.Truncate(p.log, 0); err != nil {
		t.Fatal(err)
	}
	put(t, stdout, "room\n")
	end(t, out)
	if got := p.output(t, "stdout"); got != "room\n" {
		t.Errorf("the log has %.50q", got)
	}
}

// There is no room for the spool: the output is in the log all the same.
func TestFullSpool(t *testing.T) {
	roottest.Need(t, "mounting")
	p := prepare(t, logfile.Limits{})
	l := openLog(t, p)
	out, stdout := start(t, l, p, "stdout")
	small := filepath.Join(p.dir, "small")
	mountTmpfs(t, small, "size=8k")
	end(t, out)
	spool, err := newSpool(filepath.Join(small, "spool"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := openLog(t, p).read("stdout", p.streams()["stdout"], spool)
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for want.Len() < 1<<20 {
		line := fmt.Sprintln("line", want.Len())
		want.WriteString(line)
		put(t, stdout, line)
	}
	end(t, s)
	s.CloseCopy()
	if p.output(t, "stdout") != want.String() {
		t.Error("the output in the log differs")
	}
}

// An attached client gets all output, as long as it reads. One that does not read delays the container once.
func TestCopyForClients(t *testing.T) {
	p := prepare(t, logfile.Limits{})
	out, stdout := start(t, openLog(t, p), p, "stdout")
	put(t, stdout, "before\n")
	eventually.True(t, "output without a client is in the log",
		func() bool { return p.output(t, "stdout") == "before\n" })
	client, err := os.OpenFile(p.streams()["stdout"].Copy, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("no line end", 100_000)
	go func() { _, _ = io.WriteString(stdout, text) }()
	got := make([]byte, len(text))
	_, err = io.ReadFull(client, got)
	// The copy is made after the log: a client that comes between them gets these bytes, too.
	if rest, early := bytes.CutPrefix(got, []byte("before\n")); err == nil && early {
		_, err = io.ReadFull(client, got[copy(got, rest):])
	}
	if err != nil || string(got) != text {
		t.Errorf("the client got other output, %v", err)
	}
	put(t, stdout, text) // no client reads
	end(t, out)
	if p.output(t, "stdout") != "before\n"+text+text {
		t.Error("the output in the log differs")
	}
	out.CloseCopy()
	_ = client.Close()
}

// A client sees the end of the output when the log is complete, and nothing of the output before it came.
func TestCopyWithoutClients(t *testing.T) {
	p := prepare(t, logfile.Limits{})
	out, stdout := start(t, openLog(t, p), p, "stdout")
	logged := ""
	for _, text := range []string{"before\n", "between\n"} { // the copy is made after the log
		put(t, stdout, text)
		logged += text
		eventually.True(t, "output without a client is in the log",
			func() bool { return p.output(t, "stdout") == logged })
	}
	client, err := os.OpenFile(p.streams()["stdout"].Copy, os.O_RDONLY, 0) // waits for a writer
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	put(t, stdout, "after\n")
	end(t, out)
	out.CloseCopy()
	got, err := io.ReadAll(client)
	if text := strings.TrimPrefix(string(got), "between\n"); err != nil || text != "after\n" {
		t.Errorf("the client got %q, %v", got, err)
	}
}

// Loggers are killed while a container writes to both streams at full speed. The log has every line once and in order,
// and no file exceeds the limit.
func TestKilledLogger(t *testing.T) {
	limits := logfile.Limits{MaxSize: 1 << 20, MaxFiles: 1000}
	p := prepare(t, limits)
	l := openLog(t, p)
	out, stdout := start(t, l, p, "stdout")
	err, stderr := start(t, l, p, "stderr")
	end(t, out)
	end(t, err)
	done := make(chan struct{})
	write := func(w io.Writer, seed uint64, want *strings.Builder) {
		random := rand.New(rand.NewPCG(seed, 2))
		for want.Len() < 12<<20 {
			line := strings.Repeat(string(rune('a'+seed)), random.IntN(400)) + "\n" // often the same lines
			if random.IntN(500) == 0 {
				line = strings.Repeat(line[:len(line)-1], 100) + "\n"
			}
			want.WriteString(line)
			_, _ = io.WriteString(w, line)
		}
		done <- struct{}{}
	}
	var wantOut, wantErr strings.Builder
	go write(stdout, 1, &wantOut)
	go write(stderr, 2, &wantErr)
	random := rand.New(rand.NewPCG(3, 4))
	kills := 0
	for left := 2; left > 0; kills++ {
		command := exec.CommandContext(t.Context(), os.Args[0])
		command.Env = append(os.Environ(), killedEnv+"="+p.dir)
		command.Stderr = os.Stderr
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
			left--
		case <-time.After(time.Duration(10+random.IntN(40)) * time.Millisecond):
		}
		_ = command.Process.Kill()
		_ = command.Wait()
	}
	l = Reopen(p.log, p.limits)
	var last []*Stream
	for name, paths := range p.streams() {
		s, err := l.Continue(name, paths)
		if err != nil {
			t.Fatal(err)
		}
		last = append(last, s)
	}
	for _, s := range last {
		end(t, s)
		s.CloseCopy()
	}
	if p.output(t, "stdout") != wantOut.String() || p.output(t, "stderr") != wantErr.String() {
		t.Errorf("after %d kills the output in the log differs", kills)
	}
	for _, file := range p.files(t) {
		if info, err := os.Stat(file); err != nil || info.Size() >= limits.MaxSize {
			t.Errorf("%s: %d bytes, %v", file, info.Size(), err)
		}
	}
	t.Logf("%d kills, %d files", kills, len(p.files(t)))
}

// While a container is idle, its spools hold no memory but their headers. The spools are on a tmpfs, as an agent's
// usually are: a file on ext4 keeps an index block of 4 KiB if it has had more than four extents.
func TestSpoolIsFreed(t *testing.T) {
	roottest.Need(t, "mounting")
	dir := filepath.Join(t.TempDir(), "tmpfs")
	mountTmpfs(t, dir, "size=64m")
	p := prepareIn(t, dir, logfile.Limits{})
	out, stdout := start(t, openLog(t, p), p, "stdout")
	text := strings.Repeat(strings.Repeat("x", 10_000)+"\n", 500)
	put(t, stdout, text)
	size := func() int64 {
		var stat unix.Stat_t
		if err := unix.Stat(p.streams()["stdout"].spool(), &stat); err != nil {
			t.Fatal(err)
		}
		return stat.Blocks * 512
	}
	eventually.True(t, "the spool is small", func() bool {
		return p.output(t, "stdout") == text && size() <= headerSize
	})
	put(t, stdout, "unfinished")
	for range 4 {
		put(t, stdout, text)
	}
	eventually.True(t, "all is in the log", func() bool { return strings.Count(p.output(t, "stdout"), "\n") == 500*5 })
	if size() > unfreed+2*batch {
		t.Errorf("the spool has %d bytes", size())
	}
	end(t, out)
}
