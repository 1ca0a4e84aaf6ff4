package directory

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/source/content"
)

func TestLossTellsARemovedFileFromAMissingDirectory(t *testing.T) {
	was := object.Directory{Device: 1, Inode: 2, Handle: "a"}
	mounted := object.Directory{Device: 1, Inode: 2, Handle: "a", Mount: true}
	anew := object.Directory{Device: 1, Inode: 2, Handle: "b"}
	elsewhere := object.Directory{Device: 3, Inode: 2, Handle: "a"}
	for _, tt := range []struct {
		name  string
		last  object.Directory
		known bool
		at    found
		err   error
		want  string
	}{
		{"nothing known, nothing there", object.Directory{}, false, found{}, nil, ""},
		{"nothing known, unreadable", object.Directory{}, false, found{}, errors.New("EIO"), ""},
		{"files removed", was, true, found{dir: was}, nil, ""},
		{"directory removed", was, true, found{}, nil, "does not exist"},
		{"directory unreadable", was, true, found{}, errors.New("EIO"), "cannot be read (EIO)"},
		{"made anew", was, true, found{dir: anew}, nil, ""},
		{"replaced", was, true, found{dir: elsewhere, files: 1}, nil, ""},
		{"unmounted", mounted, true, found{dir: elsewhere}, nil,
			"is empty and on another file system than its manifests were"},
		{"bind mount of the same device unmounted", mounted, true, found{dir: anew}, nil,
			"is empty and on another file system than its manifests were"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := loss(tt.last, tt.known, tt.at, tt.err); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// The directory is unmounted between a look at it and a look at one of its files.
func TestFilesOfALostDirectoryAreNotRemoved(t *testing.T) {
	dir, empty := t.TempDir(), t.TempDir()
	path := filepath.Join(t.TempDir(), "manifests")
	must(t, os.Symlink(dir, path))
	write(t, filepath.Join(dir, "web.yaml"), manifestOf("web", "app:1"))
	d := New(Options{Path: path, NodeName: "node", Period: time.Hour, Keep: true, Log: slog.New(slog.DiscardHandler)},
		discard{})
	now := time.Now()
	d.refresh(now, true, func() {})
	d.last.Mount = true // as if dir were mounted, and empty were below it
	must(t, os.Remove(path))
	must(t, os.Symlink(empty, path))
	web := filepath.Join(path, "web.yaml")
	d.look(web, now)
	for range 3 {
		now = now.Add(settleTime)
		d.lookDue(now, func() {})
	}
	if d.files[web] == nil || d.missing.IsZero() {
		t.Error("a file counts as removed because its directory is missing")
	}
}

// A manifest that an earlier agent knew is missing when the next one starts. Until that counts, the read is not
// complete: its pods would end at once.
func TestReadIsCompleteWithoutMissingFilesOnly(t *testing.T) {
	dir, copies := t.TempDir(), t.TempDir()
	web := filepath.Join(dir, "web.yaml")
	start := func(sink content.Sink) *Directory {
		d := New(Options{Path: dir, NodeName: "node", Period: time.Hour, Copies: copies,
			Log: slog.New(slog.DiscardHandler)}, sink)
		d.recall()
		return d
	}
	write(t, web, manifestOf("web", "app:1"))
	now := time.Now()
	start(discard{}).refresh(now, true, func() {})
	must(t, os.Rename(web, web+"~"))
	for _, returns := range []bool{true, false} {
		sink, complete := received{wanted: map[string]content.Wanted{}}, false
		seen := func() { complete = true }
		d := start(sink)
		d.refresh(now, true, seen)
		if complete {
			t.Error("the read is complete although a manifest may come back")
		}
		d.lookDue(now.Add(settleTime-1), seen)
		if complete {
			t.Error("the read is complete too early")
		}
		if returns {
			must(t, os.Rename(web+"~", web))
		}
		d.lookDue(now.Add(settleTime), seen)
		if got := len(sink.wanted[web].Pods); !complete || (got == 1) != returns {
			t.Errorf("the manifest returns: %t; complete: %t; pods: %d", returns, complete, got)
		}
		if returns {
			must(t, os.Rename(web, web+"~"))
		}
	}
}
