package logrotate

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOldest(t *testing.T) {
	type none = []packed
	a := packed{"p/c/0.log.20260301-120000.gz", "20260301-120000", 1000}
	b := packed{"p/d/3.log.20260302-120000.gz", "20260302-120000", 2000}
	c := packed{"q/c/0.log.20260302-120000.500.gz", "20260302-120000.500", 3000}
	all := []packed{c, a, b}
	for _, test := range []struct {
		name string
		need Space
		want []packed
	}{
		{"nothing is needed", Space{}, none{}},
		{"the oldest is enough", Space{Bytes: 1000}, []packed{a}},
		{"one byte more", Space{Bytes: 1001}, []packed{a, b}},
		{"more than there is", Space{Bytes: 1 << 40}, []packed{a, b, c}},
		{"files", Space{Files: 2}, []packed{a, b}},
	} {
		if diff := cmp.Diff(test.want, oldest(all, test.need), cmp.AllowUnexported(packed{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
	if got := oldest(nil, Space{Bytes: 1}); len(got) > 0 {
		t.Errorf("of none: %v", got)
	}
}

// Only compressed logs go. A link to another directory is not followed.
func TestRemoveOldest(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	stay := []string{"p/c/0.log", "p/c/0.log.20260301-120000", "p/c/0.log.old.gz", "p/c/data.gz",
		"p/c/0.log.20260301-120000.gz.tmp", "p/0.log.20260301-120000.gz"}
	go1, go2 := "p/c/0.log.20260228-120000.gz", "p/d/1.log.20260301-130000.gz"
	write := func(name string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755),
			os.WriteFile(name, make([]byte, 5000), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range append(stay, go1, go2) {
		write(filepath.Join(dir, name))
	}
	write(filepath.Join(outside, "c/0.log.20260101-120000.gz"))
	if err := errors.Join(os.Symlink(outside, filepath.Join(dir, "link")),
		os.Symlink("0.log", filepath.Join(dir, "p/c/9.log.20260101-120000.gz"))); err != nil {
		t.Fatal(err)
	}
	freed, err := RemoveOldest(dir, Space{Bytes: 1})
	if err != nil || freed.Files != 1 || freed.Bytes < 5000 {
		t.Errorf("freed %+v, %v", freed, err)
	}
	if _, err := os.Stat(filepath.Join(dir, go2)); err != nil {
		t.Errorf("the newer one: %v", err)
	}
	if freed, err = RemoveOldest(dir, Space{Bytes: 1 << 40}); err != nil || freed.Files != 1 {
		t.Errorf("freed %+v, %v", freed, err)
	}
	for _, name := range append(stay, "link/c/0.log.20260101-120000.gz") {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if _, err := RemoveOldest(filepath.Join(dir, "missing"), Space{Bytes: 1}); err == nil {
		t.Error("no error for a missing directory")
	}
}
