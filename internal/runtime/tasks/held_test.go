package tasks

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A shim that was killed may keep the output of a container open for ever. containerd must not wait for it.
func TestOutputEndsWithItsLastWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stdout")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	held := newHeld()
	held.hold("c", []string{path})
	if !held.outputEnds("c") {
		t.Error("the output of a container that runs is waited for")
	}
	shim, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shim.WriteString("unread"); err != nil {
		t.Fatal(err)
	}
	held.release("c")
	begin := held.ended["c"].at
	late := held.ended["c"]
	late.at = begin.Add(-outputPatience)
	held.ended["c"] = late
	if held.outputEnds("c") {
		t.Error("the output ends while a shim has it open")
	}

	late.at = begin.Add(time.Hour)
	held.ended["c"] = late
	ends := make(chan bool)
	go func() { ends <- held.outputEnds("c") }()
	if err := shim.Close(); err != nil {
		t.Fatal(err)
	}
	if !<-ends {
		t.Error("the output does not end with its last writer, want its end although nobody has read it")
	}
	held.forget("c")
	if len(held.files)+len(held.ended) > 0 {
		t.Errorf("files of a deleted container are open: %v, %v", held.files, held.ended)
	}
}

// A container that is deleted while its output is waited for.
func TestOutputEndsWithItsContainer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stdout")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	shim, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer shim.Close()
	held := newHeld()
	held.hold("c", []string{path})
	held.release("c")
	ends := make(chan bool)
	go func() { ends <- held.outputEnds("c") }()
	held.forget("c")
	if !<-ends {
		t.Error("the output of a deleted container does not end")
	}
}
