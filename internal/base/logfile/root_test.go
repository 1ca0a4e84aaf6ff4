package logfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Nothing is made, renamed or opened behind a link that a container has put in the place of a directory.
func TestRootStaysInside(t *testing.T) {
	base := t.TempDir()
	logs, outside := filepath.Join(base, "logs"), filepath.Join(base, "outside")
	dir := filepath.Join(logs, "pod", "app")
	if err := errors.Join(MkdirAll(dir, Depth-1), os.Mkdir(outside, 0o700),
		os.WriteFile(filepath.Join(outside, "0.log"), []byte("outside"), 0o600),
		os.Symlink(outside, filepath.Join(logs, "pod", "linked")),
		os.Symlink(outside, filepath.Join(logs, "other"))); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir   string
		depth int
	}{{"pod/linked", 2}, {"other/app", 2}, {"other", 1}} {
		at := filepath.Join(logs, c.dir)
		if err := MkdirAll(at, c.depth); err == nil {
			t.Errorf("%s: no error from MkdirAll", c.dir)
		}
		if c.depth < Depth-1 {
			continue
		}
		root, rel, err := Root(filepath.Join(at, "0.log"))
		if err != nil {
			t.Fatal(err)
		}
		if f, err := root.OpenFile(rel, os.O_RDWR|os.O_CREATE, 0o600); err == nil {
			t.Errorf("%s: opened %s", c.dir, f.Name())
		}
		if err := Rename(root, rel, "1.log"); err == nil {
			t.Errorf("%s: renamed", c.dir)
		}
		if err := root.Close(); err != nil {
			t.Error(err)
		}
	}
	entries, err := os.ReadDir(outside)
	if err != nil || len(entries) != 1 || entries[0].Name() != "0.log" {
		t.Errorf("outside are %v, %v", entries, err)
	}
}

func TestRename(t *testing.T) {
	log := filepath.Join(t.TempDir(), "pod", "app", "0.log")
	root, rel, err := Root(log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }() // nothing is written through it
	if rel != "pod/app/0.log" {
		t.Errorf("below the root is %s", rel)
	}
	if err := errors.Join(MkdirAll(filepath.Dir(log), Depth-1), os.WriteFile(log, nil, 0o600),
		os.WriteFile(log+".1", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := Rename(root, rel, "0.log.1"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("to a name that exists: %v", err)
	}
	if err := Rename(root, rel, "0.log.2"); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(log + ".2"); err != nil {
		t.Error(err)
	}
}
