package fifos

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
	held := NewHeld()
	held.Hold("c", []string{path})
	now := time.Now()
	if !held.OutputEnds("c", now) {
		t.Error("the output of a container that runs is waited for")
	}
	shim, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shim.WriteString("unread"); err != nil {
		t.Fatal(err)
	}
	held.Release("c")
	end := held.ended["c"]
	end.at = now.Add(-outputPatience)
	held.ended["c"] = end
	if held.OutputEnds("c", now) {
		t.Error("the output ends while a shim has it open")
	}

	end.at = now.Add(time.Hour)
	held.ended["c"] = end
	ends := make(chan bool)
	go func() { ends <- held.OutputEnds("c", end.at) }()
	if err := shim.Close(); err != nil {
		t.Fatal(err)
	}
	if !<-ends {
		t.Error("the output does not end with its last writer, want its end although nobody has read it")
	}
	end.at = now.Add(-time.Hour)
	held.ended["c"] = end
	if !held.OutputEnds("c", end.at) {
		t.Error("output that has ended does not end when it is asked for late")
	}
	held.Forget("c")
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
	held := NewHeld()
	held.Hold("c", []string{path})
	held.Release("c")
	ends := make(chan bool)
	go func() { ends <- held.OutputEnds("c", time.Now()) }()
	held.Forget("c")
	if !<-ends {
		t.Error("the output of a deleted container does not end")
	}
}

func TestOutputIsWaitedForAfterTheExit(t *testing.T) {
	at := time.Now()
	for name, test := range map[string]struct{ exited, want time.Duration }{
		"just now":                  {-time.Second, outputPatience - time.Second},
		"while the agent was away":  {-time.Hour, readPatience},
		"before the clock was late": {time.Hour, outputPatience},
	} {
		if got := (ending{at: at}).until(at.Add(test.exited)).Sub(at); got != test.want {
			t.Errorf("%s: waits for %v, want %v", name, got, test.want)
		}
	}
}
