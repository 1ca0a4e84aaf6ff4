package rootdir

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/inotify"
	"github.com/berth-run/berth/internal/base/lock"
	"github.com/berth-run/berth/internal/base/roottest"
)

// fill makes directories with a file in each below a new directory.
func fill(t *testing.T, names ...string) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	for _, name := range names {
		if err := os.MkdirAll(filepath.Join(root, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name, "file"), []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// tree lists everything below a directory.
func tree(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if path != dir {
			rel, _ := filepath.Rel(dir, path)
			all = append(all, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// mounted mounts the directory from on another one, or a tmpfs with a file if from is empty.
func mounted(t *testing.T, from, at string) {
	t.Helper()
	roottest.Need(t, "mounting")
	var err error
	if from != "" {
		err = unix.Mount(from, at, "", unix.MS_BIND, "")
	} else if err = unix.Mount("tmpfs", at, "tmpfs", 0, ""); err == nil {
		err = os.WriteFile(filepath.Join(at, "file"), nil, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
}

func opened(t *testing.T, root string) *Dir {
	t.Helper()
	d, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func TestRemoveRemovesTheDirectory(t *testing.T) {
	root := fill(t, "pki", "pods/a", "volumes")
	if err := opened(t, root).Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(root); !os.IsNotExist(err) {
		t.Errorf("%s is there: %v", root, err)
	}
}

func TestRemoveKeepsFilesOfOthersInTheKubeletsDirectory(t *testing.T) {
	stays := []string{"config.yaml", "config.yaml/file", "pki", "pki/file"}
	root := fill(t, slices.Concat([]string{"config.yaml", "pki"}, made())...)
	d := opened(t, root)
	d.keeps, d.fixed = func(name string) bool { return !slices.Contains(made(), name) }, true
	if err := d.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(stays, tree(t, root)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// ARCHITECTURE.md lists what agents and administrators have under the root directory.
func TestRemoveKnowsEveryEntryOfTheTable(t *testing.T) {
	page, err := os.ReadFile("../../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "| under the root directory | what |\n|---|---|\n")
	if !found {
		t.Fatal("ARCHITECTURE.md has no table of the root directory")
	}
	administrators := []string{"certs.d", "hooks.d", "pki", "seccomp"}
	rows := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			break
		}
		rows++
		for path := range strings.SplitSeq(cells[1], ",") {
			name, _, _ := strings.Cut(strings.TrimSpace(path), "/")
			if !slices.Contains(made(), name) && !slices.Contains(administrators, name) {
				t.Errorf("a reset in the kubelet's directory leaves %s: add it to made", name)
			}
		}
	}
	if rows < 30 {
		t.Errorf("only %d rows", rows)
	}
}

// Another agent may use the same directory of sockets and mounts.
func TestRemoveKeepsSocketsOfOtherAgents(t *testing.T) {
	dir := fill(t, "runtime", "docker", "other")
	d, err := OpenRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	if err := d.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"other", "other/file"}, tree(t, dir)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRemoveEmptiesADirectoryBehindALink(t *testing.T) {
	root := fill(t, "pods/a", "runtime")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(root, link); err != nil {
		t.Fatal(err)
	}
	outside := fill(t, ".")
	mounted(t, outside, filepath.Join(root, "pods/a"))
	d := opened(t, link)
	if err := d.Unmount(); err != nil {
		t.Fatal(err)
	}
	if err := d.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"file"}, tree(t, outside)); diff != "" {
		t.Errorf("behind the mount (-want +got):\n%s", diff)
	}
	if left := tree(t, root); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if to, err := os.Readlink(link); err != nil || to != root {
		t.Errorf("the link leads to %q, %v", to, err)
	}
}

func TestRemoveEmptiesAMountPointAndKeepsItMounted(t *testing.T) {
	root := fill(t, ".")
	mounted(t, "", root)
	outside := fill(t, ".")
	inside := filepath.Join(root, "plugins/csi/volume")
	if err := os.MkdirAll(inside, 0o700); err != nil {
		t.Fatal(err)
	}
	mounted(t, outside, inside)
	mounted(t, "", inside) // one mount on another
	d := opened(t, root)
	if err := d.Unmount(); err != nil {
		t.Fatal(err)
	}
	if err := d.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if at, err := mountPoint(root); !at || err != nil {
		t.Errorf("mounted: %t, %v", at, err)
	}
	if left := tree(t, root); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if diff := cmp.Diff([]string{"file"}, tree(t, outside)); diff != "" {
		t.Errorf("behind the mount (-want +got):\n%s", diff)
	}
}

// A mount of the administrator stays at its path, and the lock file with it.
func TestRemoveNamesAMountThatStays(t *testing.T) {
	root := fill(t, "pods", "volumes/pvc/a/disk", "volumes/pvc/b", lock.RootFile)
	outside := fill(t, ".")
	disk := filepath.Join(root, "volumes/pvc/a/disk")
	mounted(t, outside, disk)
	d := opened(t, root)
	if err := d.Unmount(); err != nil {
		t.Fatal(err)
	}
	err := d.Remove(t.Context())
	if err == nil || !strings.Contains(err.Error(), disk+" stays with its files: it is a mount point") {
		t.Errorf("got %v", err)
	}
	want := []string{lock.RootFile, lock.RootFile + "/file", "volumes", "volumes/pvc", "volumes/pvc/a",
		"volumes/pvc/a/disk", "volumes/pvc/a/disk/file"}
	if diff := cmp.Diff(want, tree(t, root)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A mount that was covered by another one cannot be unmounted by its path.
func TestUnmountNamesAMountThatIsHidden(t *testing.T) {
	root := fill(t, "pods/a/b")
	mounted(t, "", filepath.Join(root, "pods/a/b"))
	mounted(t, "", filepath.Join(root, "pods"))
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(root, "pods"), unix.MNT_DETACH) }) // before the others
	err := opened(t, root).Unmount()
	if err == nil || !strings.Contains(err.Error(), "unmount "+filepath.Join(root, "pods/a/b")) {
		t.Errorf("got %v", err)
	}
}

// An agent that starts while the files are deleted finds the lock until nothing else is left.
func TestRemoveRemovesTheLockFileLast(t *testing.T) {
	root := fill(t, "applied", "pods", "volumes", "zz")
	unlock, err := lock.Root(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := inotify.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = kernel.Close() }()
	if _, err := kernel.Add(root, unix.IN_DELETE); err != nil {
		t.Fatal(err)
	}
	if err := opened(t, root).Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	events, err := kernel.Read(make([]byte, 4096))
	if err != nil {
		t.Fatal(err)
	}
	var deleted []string
	for _, e := range events {
		deleted = append(deleted, e.Name)
	}
	if len(deleted) != 5 || deleted[4] != lock.RootFile {
		t.Errorf("deleted in this order: %q", deleted)
	}
	if err := unlock(); err != nil {
		t.Error(err)
	}
}

func TestRemoveEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := opened(t, fill(t, "pods")).Remove(ctx); err == nil {
		t.Error("removed after its context")
	}
}
