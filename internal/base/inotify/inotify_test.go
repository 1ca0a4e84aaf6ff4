package inotify

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestAimIgnoresThePathBefore(t *testing.T) {
	w, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	old, now := t.TempDir(), t.TempDir()
	for _, dir := range []string{old, now} {
		if err := w.Aim(dir, Entries); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{old, now} {
		if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var got []Event
	for len(got) == 0 {
		for _, e := range <-w.Events() {
			if w.Current(e) {
				got = append(got, e)
			}
		}
	}
	want := []Event{{Watch: got[0].Watch, Mask: unix.IN_CREATE | unix.IN_ISDIR, Name: "sub"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
}

func TestAddFileFollowsARename(t *testing.T) {
	i, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "a")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	watch, err := i.AddFile(f, unix.IN_MODIFY)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	got, err := i.Read(make([]byte, 4096))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]Event{{Watch: watch, Mask: unix.IN_MODIFY}}, got); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	i.Remove(watch)
	i.Remove(watch) // ended before
}

func TestReadEnds(t *testing.T) {
	i, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := i.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := i.Read(make([]byte, 4096)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after its deadline: %v", err)
	}
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := i.Read(make([]byte, 4096)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestAddNamesThePath(t *testing.T) {
	i, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = i.Close() }()
	path := filepath.Join(t.TempDir(), "none")
	_, err = i.Add(path, unix.IN_MODIFY)
	if want := "watch " + path + ": no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
