package socket

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestCloseAllEndsConnections(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	var clients []net.Conn
	for i := range 3 {
		client, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			_ = accepted.Close() // the next Accept forgets it
		}
		clients = append(clients, client)
	}
	if len(l.open) != 2 {
		t.Errorf("%d connections are kept, want those that are open", len(l.open))
	}
	l.CloseAll()
	for i, client := range clients {
		if _, err := client.Read(make([]byte, 1)); err == nil {
			t.Errorf("connection %d is open", i)
		}
	}
	if _, err := net.Dial("unix", path); err == nil {
		t.Error("the socket accepts connections")
	}
}

func TestScratchIsEmpty(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for range 2 {
		dir, err := Scratch(path)
		if err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("files of a shim before: %v, %v", left, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
