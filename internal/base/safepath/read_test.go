package safepath

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	name := func(base string) string { return filepath.Join(dir, base) }
	if err := errors.Join(os.WriteFile(name("small"), []byte("text"), 0o600), unix.Mkfifo(name("fifo"), 0o600),
		os.WriteFile(name("huge"), nil, 0o600), os.Truncate(name("huge"), 1<<40),
		os.Symlink(name("small"), name("link"))); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadFile(name("small"), 1, 4); err != nil || string(got) != "text" {
		t.Errorf("small: %q, %v", got, err)
	}
	for _, base := range []string{"fifo", "link"} {
		if _, err := ReadFile(name(base), 1, 4); !errors.Is(err, ErrNotFile) {
			t.Errorf("%s: %v, want ErrNotFile", base, err)
		}
	}
	if _, err := ReadFile(name("huge"), 1, 4); err == nil {
		t.Error("a file beyond the limit was read")
	}
	if _, err := ReadFile(name("none"), 1, 4); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
}
