package ownership

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/roottest"
	"github.com/berth-run/berth/internal/base/safepath"
)

func TestFits(t *testing.T) {
	onMismatch, always := corev1.FSGroupChangeOnRootMismatch, corev1.FSGroupChangeAlways
	const dir, file, link = 0o040000, 0o100000, 0o120000
	type answer struct{ fits, skips bool }
	tests := map[string]struct {
		want Want
		mode uint32
		gid  uint32
		is   answer
	}{
		"a file as wanted":          {Want{Group: 7}, file | 0o660, 7, answer{true, false}},
		"of another group":          {Want{Group: 7}, file | 0o660, 8, answer{}},
		"not writable":              {Want{Group: 7}, file | 0o640, 7, answer{}},
		"read-only is enough":       {Want{Group: 7, ReadOnly: true}, file | 0o640, 7, answer{true, false}},
		"a link of any mode":        {Want{Group: 7}, link, 7, answer{true, false}},
		"a directory, no setgid":    {Want{Group: 7, Policy: &onMismatch}, dir | 0o770, 7, answer{}},
		"a directory as wanted":     {Want{Group: 7, Policy: &onMismatch}, dir | 0o2775, 7, answer{true, true}},
		"the same, Always":          {Want{Group: 7, Policy: &always}, dir | 0o2775, 7, answer{true, false}},
		"the same, no policy":       {Want{Group: 7}, dir | 0o2775, 7, answer{true, false}},
		"a file tells nothing":      {Want{Group: 7, Policy: &onMismatch}, file | 0o660, 7, answer{true, false}},
		"a directory not traversed": {Want{Group: 7, Policy: &onMismatch}, dir | 0o2660, 7, answer{}},
	}
	for name, test := range tests {
		got := answer{test.want.fits(test.mode, test.gid), test.want.skips(test.mode, test.gid)}
		if got != test.is {
			t.Errorf("%s: %+v, want %+v", name, got, test.is)
		}
	}
}

type look struct {
	mode os.FileMode
	gid  uint32
}

func looks(t *testing.T, root string) map[string]look {
	t.Helper()
	all := map[string]look{}
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		all[rel] = look{info.Mode(), info.Sys().(*syscall.Stat_t).Gid}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func apply(ctx context.Context, t *testing.T, path string, want Want) error {
	t.Helper()
	root, err := safepath.Host(path)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	return (&Walk{}).Run(ctx, root, want)
}

func needRoot(t *testing.T) {
	t.Helper()
	roottest.Need(t, "changing owners")
}

func TestRun(t *testing.T) {
	needRoot(t)
	volume, outside := t.TempDir(), t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(volume, name) }
	must(os.Chmod(volume, 0o755))
	must(os.Mkdir(at("a"), 0o700))
	must(os.WriteFile(at("a/file"), nil, 0o600))
	must(os.WriteFile(at("setuid"), nil, 0o600))
	must(os.Chmod(at("setuid"), 0o755|os.ModeSetuid))
	must(os.WriteFile(filepath.Join(outside, "secret"), nil, 0o600))
	must(os.Symlink(outside, at("link")))
	must(os.Symlink("nowhere", at("dangling")))
	must(unix.Mkfifo(at("pipe"), 0o600))
	must(os.Mkdir(at("mounted"), 0o700))
	must(unix.Mount(outside, at("mounted"), "", unix.MS_BIND, ""))
	defer func() { _ = unix.Unmount(at("mounted"), unix.MNT_DETACH) }()
	before := looks(t, outside)

	must(apply(t.Context(), t, volume, Want{Group: 4711}))
	want := map[string]look{
		".": {os.ModeDir | os.ModeSetgid | 0o775, 4711}, "a": {os.ModeDir | os.ModeSetgid | 0o770, 4711},
		"a/file": {0o660, 4711},
		"setuid": {os.ModeSetuid | 0o775, 4711}, "link": {os.ModeSymlink | 0o777, 4711},
		"dangling": {os.ModeSymlink | 0o777, 4711},
		"pipe":     {os.ModeNamedPipe | 0o660, 4711}, "mounted": before["."], "mounted/secret": before["secret"],
	}
	if d := cmp.Diff(want, looks(t, volume), cmp.AllowUnexported(look{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}

	policy := corev1.FSGroupChangeOnRootMismatch
	must(os.Lchown(at("a/file"), -1, 0))
	must(apply(t.Context(), t, volume, Want{Group: 4711, Policy: &policy}))
	if got := looks(t, volume)["a/file"].gid; got != 0 {
		t.Errorf("OnRootMismatch went through a volume whose root fits: group %d", got)
	}
	must(apply(t.Context(), t, volume, Want{Group: 4712, Policy: &policy}))
	if got := looks(t, volume)["a/file"].gid; got != 4712 {
		t.Errorf("OnRootMismatch did not go through a volume of another group: group %d", got)
	}
}

func TestRunOfAFile(t *testing.T) {
	needRoot(t)
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := apply(t.Context(), t, name, Want{Group: 5}); err != nil {
		t.Fatal(err)
	}
	if got, want := looks(t, name)["."], (look{0o660, 5}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// The root is changed last, so that the next walk does not skip the rest.
func TestInterruptedRunLeavesTheRoot(t *testing.T) {
	needRoot(t)
	volume := t.TempDir()
	for i := range 100 {
		if err := os.MkdirAll(filepath.Join(volume, strconv.Itoa(i), "x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := apply(ctx, t, volume, Want{Group: 5}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if got := looks(t, volume)["."].gid; got != 0 {
		t.Errorf("the root is of group %d", got)
	}
}

func TestTooDeep(t *testing.T) {
	needRoot(t)
	volume := t.TempDir()
	at, err := os.Open(volume)
	if err != nil {
		t.Fatal(err)
	}
	for range maxDepth + 2 {
		if err := unix.Mkdirat(int(at.Fd()), "d", 0o700); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Openat(int(at.Fd()), "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		at.Close()
		if err != nil {
			t.Fatal(err)
		}
		at = os.NewFile(uintptr(fd), "d")
	}
	at.Close()
	defer func() { _ = safepath.RemoveAll(context.Background(), filepath.Join(volume, "d")) }()
	err = apply(t.Context(), t, volume, Want{Group: 5})
	if partial, ok := errors.AsType[*Partial](err); !ok || partial.Failed != 1 {
		t.Errorf("got %v, want one failure", err)
	}
	if got := gid(t, filepath.Join(volume, "d/d/d")); got != 5 {
		t.Errorf("what is above is of group %d", got)
	}
}

func gid(t *testing.T, name string) uint32 {
	t.Helper()
	info, err := os.Lstat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Gid
}
