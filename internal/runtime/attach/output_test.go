package attach

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/eventually"
)

// makeOutput makes the FIFO of an output, and opens it as the shim does.
func makeOutput(t *testing.T) (path string, shim *os.File) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "stdout.copy")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	shim, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = shim.Close() })
	return path, shim
}

func write(t *testing.T, to io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(to, text); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, from io.Reader, text string) {
	t.Helper()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(from, got); err != nil || string(got) != text {
		t.Fatalf("the client got %q, %v, want %q", got, err, text)
	}
}

func isOpen(s *Server) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open) > 0
}

func TestClientsShareAnOutput(t *testing.T) {
	s := New(nil, nil, "")
	path, shim := makeOutput(t)
	write(t, shim, "an earlier client has not read this")
	var readers [2]*io.PipeReader
	var clients [2]*client
	for i := range clients {
		reader, writer := io.Pipe()
		c, err := s.join(path, writer)
		if err != nil {
			t.Fatal(err)
		}
		readers[i], clients[i] = reader, c
	}
	for _, text := range []string{"new", "newer"} {
		write(t, shim, text)
		got := make(chan string, 1)
		go func() {
			content := make([]byte, len(text))
			_, _ = io.ReadFull(readers[1], content)
			got <- string(content)
		}()
		expect(t, readers[0], text)
		if other := <-got; other != text {
			t.Errorf("the other client got %q, want %q", other, text)
		}
	}
	for _, c := range clients {
		s.leave(c)
	}
	if isOpen(s) {
		t.Error("an output is open without a client")
	}
}

// A client that takes no output leaves. The output is closed after the last one, and opens again for the next.
func TestOutputClosesAfterItsLastClient(t *testing.T) {
	s := New(nil, nil, "")
	path, shim := makeOutput(t)
	reader, writer := io.Pipe()
	failing, err := s.join(path, writer)
	if err != nil {
		t.Fatal(err)
	}
	_ = reader.CloseWithError(errors.New("the client is gone"))
	write(t, shim, "x")
	<-failing.done
	if isOpen(s) {
		t.Error("an output is open without a client")
	}
	s.leave(failing) // once more
	reader, writer = io.Pipe()
	next, err := s.join(path, writer)
	if err != nil {
		t.Fatal(err)
	}
	write(t, shim, "y")
	expect(t, reader, "y")

	// The shim is killed. That is not the end of the output of a container that runs.
	if err := shim.Close(); err != nil {
		t.Fatal(err)
	}
	if shim, err = os.OpenFile(path, os.O_WRONLY, 0); err != nil {
		t.Fatal(err)
	}
	write(t, shim, "z")
	expect(t, reader, "z")
	s.mu.Lock()
	s.finish([]string{path})
	s.mu.Unlock()
	write(t, shim, "the rest")
	expect(t, reader, "the rest")
	_ = shim.Close()
	<-next.done
	eventually.True(t, "the output is closed", func() bool { return !isOpen(s) })
}

func TestNoOutput(t *testing.T) {
	if _, err := New(nil, nil, "").join(filepath.Join(t.TempDir(), "none"), io.Discard); !os.IsNotExist(err) {
		t.Errorf("an output that does not exist: %v", err)
	}
}
