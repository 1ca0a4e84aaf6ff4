package stdio

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/roottest"
)

func makeFIFOs(t *testing.T, names ...string) (paths []string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := unix.Mkfifo(path, 0o700); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

// reader opens a FIFO as containerd does. It does not wait for writers.
func reader(t *testing.T, path string) *os.File {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// The reader goes, as an agent does that is killed, and the keeper too, as a shim does. The process still writes
// without an error. The next reader gets everything, and then the end.
func TestOutputOutlivesReaderAndKeeper(t *testing.T) {
	path := makeFIFOs(t, "out")[0]
	first := reader(t, path)
	var s IO
	if err := s.Open(t.Context(), Paths{Out: path}, Owner{}); err != nil {
		t.Fatal(err)
	}
	process := s.process[1]
	write := func(text string) {
		t.Helper()
		if _, err := process.WriteString(text); err != nil {
			t.Fatalf("write while nobody reads: %v", err)
		}
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	write("no reader\n")
	for _, file := range s.out { // the shim is killed
		_ = file.Close()
	}
	write("no shim\n")
	var next IO
	next.Reopen(Paths{Out: path})
	if err := process.Close(); err != nil { // the container ends
		t.Fatal(err)
	}
	next.AwaitRead(time.Millisecond)
	if next.drained() {
		t.Error("unread output counts as read")
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		next.Drain()
	}()
	content, err := io.ReadAll(reader(t, path))
	if err != nil || string(content) != "no reader\nno shim\n" {
		t.Errorf("read %q, %v", content, err)
	}
	<-ended
}

// The input does not end with a writer, but with CloseInput, also in a next shim.
func TestInputEndsWithCloseInput(t *testing.T) {
	path := makeFIFOs(t, "in")[0]
	var s IO
	if err := s.Open(t.Context(), Paths{In: path}, Owner{}); err != nil {
		t.Fatal(err)
	}
	input := s.process[0]
	defer func() { _ = s.Close() }()
	writer, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writer.WriteString("some"); err != nil {
		t.Fatal(err)
	}
	_ = writer.Close()
	buffer := make([]byte, 8)
	if n, err := input.Read(buffer); err != nil || string(buffer[:n]) != "some" {
		t.Errorf("read %q, %v", buffer[:n], err)
	}
	var closed, open IO
	closed.Reopen(Paths{In: path, InputClosed: true})
	open.Reopen(Paths{In: path})
	if closed.in != nil || open.in == nil {
		t.Errorf("a next shim keeps the closed input open: %v, or drops the open one: %v", closed.in, open.in)
	}
	open.CloseInput()
	s.CloseInput()
	if n, err := input.Read(buffer); err != io.EOF {
		t.Errorf("read %d bytes, %v after the end of the input", n, err)
	}
}

func TestOpenWithoutFIFOs(t *testing.T) {
	var s IO
	if err := s.Open(t.Context(), Paths{}, Owner{}); err != nil {
		t.Fatal(err)
	}
	for fd, file := range s.process {
		if file == nil || file.Name() != os.DevNull {
			t.Errorf("descriptor %d of a process without I/O is %v", fd, file)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Open(t.Context(), Paths{Out: "binary:///bin/logger"}, Owner{}); err == nil {
		t.Error("opened a logger")
	}
}

// A process whose log is on a file system that does not answer still ends, for the shim that started it and for the
// next one. Its log has everything when the file system answers again.
func TestLogThatHangsDelaysTheEndOnly(t *testing.T) {
	roottest.Need(t, "mounting")
	for _, name := range []string{"the same shim", "the next shim"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testHangingLog(t, name == "the next shim")
		})
	}
}

func testHangingLog(t *testing.T, next bool) {
	paths := makeFIFOs(t, "out", "err")
	dir := t.TempDir()
	p := Paths{Out: paths[0], Err: paths[1], Log: &Log{Path: filepath.Join(dir, "logs", "0.log"), Dir: dir}}
	copies := []*os.File{reader(t, paths[0]), reader(t, paths[1])}
	var s IO
	if err := s.Open(t.Context(), p, Owner{}); err != nil {
		t.Fatal(err)
	}
	process := s.process
	s.process = [3]*os.File{}
	release, err := roottest.Hang(filepath.Dir(p.Log.Path))
	if err != nil {
		t.Fatal(err)
	}
	released := sync.OnceValue(release)
	defer func() { _ = released() }()
	if next {
		_ = s.Close()
		for _, stream := range s.streams() {
			<-stream.Done() // a shim that is gone reads nothing any more
		}
		s = IO{}
		s.Reopen(p)
	}
	for _, file := range process[1:] {
		if _, err := file.WriteString("the last line\n"); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range process { // the process ends
		_ = file.Close()
	}
	s.Drain()
	for _, file := range copies {
		if _, err := io.ReadAll(file); err != nil {
			t.Error(err)
		}
	}
	if err := released(); err != nil {
		t.Fatal(err)
	}
	for _, stream := range s.streams() {
		<-stream.Done()
	}
	content, err := os.ReadFile(p.Log.Path)
	if n := strings.Count(string(content), "the last line\n"); err != nil || n != 2 {
		t.Errorf("the log has %q, %v", content, err)
	}
}
