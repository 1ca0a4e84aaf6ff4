package safepath

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/roottest"
)

func TestRemoveAll(t *testing.T) {
	_, inside, outside := volume(t)
	link(t, outside, filepath.Join(inside, "link"))
	for i := range 600 { // more than one round of names
		if err := os.MkdirAll(filepath.Join(inside, "many", strconv.Itoa(i), "x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(inside, ".removed-1"), nil, 0o400); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := RemoveAll(t.Context(), inside); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(inside); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	untouched(t, outside)
	for _, name := range []string{filepath.Join(outside, "secret"), filepath.Join(outside, "none", "below")} {
		if err := RemoveAll(t.Context(), name); err != nil {
			t.Errorf("remove %s: %v", name, err)
		}
	}
}

func TestRemoveAllOfLink(t *testing.T) {
	_, inside, outside := volume(t)
	link(t, outside, filepath.Join(inside, "link"))
	if err := RemoveAll(t.Context(), filepath.Join(inside, "link")); err != nil {
		t.Fatal(err)
	}
	untouched(t, outside)
}

// The tree is deeper than the longest path and than the number of open files allows.
func TestRemoveAllDeep(t *testing.T) {
	dir, inside, _ := volume(t)
	at := int(dir.Fd())
	for range 2500 {
		if err := unix.Mkdirat(at, "d", 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if at != int(dir.Fd()) {
			_ = unix.Close(at)
		}
		at = next
	}
	_ = unix.Close(at)
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &was) }()
	if err := RemoveAll(t.Context(), inside); err != nil {
		t.Fatal(err)
	}
}

func TestRemoveAllStopsAtMounts(t *testing.T) {
	roottest.Need(t, "mounting")
	_, inside, outside := volume(t)
	at := filepath.Join(inside, "a/b/mounted")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(inside, "a/beside"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(outside, at, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	mounted := true
	defer func() {
		if mounted {
			_ = unix.Unmount(at, unix.MNT_DETACH)
		}
	}()
	if err := RemoveAll(t.Context(), at); !errors.Is(err, unix.EBUSY) {
		t.Errorf("the mount point itself: %v, want EBUSY", err)
	}
	untouched(t, outside)
	err := RemoveAll(t.Context(), inside)
	if !errors.Is(err, unix.EBUSY) {
		t.Errorf("got %v, want EBUSY", err)
	}
	untouched(t, outside)
	if _, err := os.Lstat(filepath.Join(inside, "a/beside")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was beside the mount: %v", err)
	}
	// The mount point was moved with its directory: find it again to unmount it.
	matches, _ := filepath.Glob(filepath.Join(inside, "*", "mounted"))
	matches = append(matches, at)
	for _, m := range matches {
		if unix.Unmount(m, 0) == nil {
			mounted = false
		}
	}
	if err := RemoveAll(t.Context(), inside); err != nil {
		t.Errorf("after unmounting: %v", err)
	}
}

func TestRemoveAllEndsWithItsContext(t *testing.T) {
	_, inside, _ := volume(t)
	if err := os.MkdirAll(filepath.Join(inside, "a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := RemoveAll(ctx, inside); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want it to stop with its context", err)
	}
}

// During the removal, another thread exchanges a directory for a link to the outside and adds files to the tree.
func TestRemoveAllStaysInsideDuringSwaps(t *testing.T) {
	_, inside, outside := volume(t)
	removed, failed := 0, 0
	for i := range 40 {
		for j := range 20 {
			if err := os.MkdirAll(filepath.Join(inside, "top/d/x"+strconv.Itoa(j), "secret"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		link(t, outside, filepath.Join(inside, "top/evil"))
		busy, err := os.Open(filepath.Join(inside, "top/d"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for n := 0; ctx.Err() == nil; n++ {
				_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(inside, "top/d"), unix.AT_FDCWD,
					filepath.Join(inside, "top/evil"), unix.RENAME_EXCHANGE)
				if i%2 == 0 {
					_ = unix.Mkdirat(int(busy.Fd()), "late"+strconv.Itoa(n%5), 0o755)
				}
			}
		}()
		if err := RemoveAll(t.Context(), filepath.Join(inside, "top")); err != nil {
			failed++ // the thread added files faster than RemoveAll removed them
		} else {
			removed++
		}
		stop()
		<-ended
		busy.Close()
		if err := RemoveAll(t.Context(), filepath.Join(inside, "top")); err != nil {
			t.Fatalf("with nobody in the way: %v", err)
		}
		untouched(t, outside)
	}
	t.Logf("%d removed, %d failed", removed, failed)
	if removed == 0 {
		t.Error("nothing was removed")
	}
}

// Two agents may sweep the same directory at once: what the other one removes is removed.
func TestRemoveAllBesideAnother(t *testing.T) {
	_, inside, _ := volume(t)
	for range 100 {
		for j := range 20 {
			dir := filepath.Join(inside, "d"+strconv.Itoa(j%4), "x"+strconv.Itoa(j), "deep")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		ended := make(chan error)
		for range 4 {
			go func() { ended <- RemoveAll(t.Context(), inside) }()
		}
		for range 4 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if _, err := os.Lstat(inside); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("the directory after its removal: %v", err)
		}
	}
}
