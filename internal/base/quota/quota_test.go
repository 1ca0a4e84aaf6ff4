package quota

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/diskusage"
	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/base/roottest"
)

// files is how many files a walk visits, to compare it with the reading of a quota.
var files = flag.Int("files", 5000, "how many `files` the slowest test makes")

// disk is a file system with project quotas, and the error of a write beyond a limit.
type disk struct {
	mkfs []string
	full error
}

func disks() map[string]disk {
	return map[string]disk{
		"xfs": {[]string{"mkfs.xfs", "-q"}, unix.ENOSPC},
		"ext4": {[]string{"mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=prjquota", "-N",
			strconv.Itoa(*files + 10_000)}, unix.EDQUOT},
	}
}

// onEach runs a test on each of the disks. It skips a disk whose quotas the kernel does not have.
func onEach(t *testing.T, test func(t *testing.T, dir string, full error)) {
	roottest.Need(t, "mounting")
	for kind, d := range disks() {
		t.Run(kind, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "disk")
			image := dir + ".img"
			if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(image, nil, 0o600),
				os.Truncate(image, 512<<20+int64(*files)*2048)); err != nil {
				t.Fatal(err)
			}
			run := func(args ...string) (string, error) {
				out, err := exec.CommandContext(context.Background(), args[0], args[1:]...).CombinedOutput()
				return string(out), err
			}
			if out, err := run(append(d.mkfs, image)...); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if out, err := run("mount", "-o", "loop,prjquota", image, dir); err != nil {
				t.Skipf("this kernel has no project quotas on %s: %s", kind, out)
			}
			t.Cleanup(func() {
				if err := unix.Unmount(dir, 0); err != nil {
					t.Error(err)
				}
			})
			test(t, dir, d.full)
		})
	}
}

func TestAProjectCountsAsAWalkDoes(t *testing.T) {
	onEach(t, func(t *testing.T, dir string, _ error) {
		if s, err := StateOf(dir); err != nil || s != (State{true, true}) {
			t.Fatalf("state %+v, %v", s, err)
		}
		a, b := newProject(t, &Projects{}, dir, "a"), newProject(t, &Projects{}, dir, "b")
		compare(t, a)
		for i := range 100 {
			write(t, filepath.Join(a, "below", fmt.Sprint(i)), 10_000*i)
		}
		write(t, filepath.Join(b, "file"), 1<<20)
		used := compare(t, a)
		if compare(t, b); used.Inodes != 101 || used.Bytes < 49_000_000 {
			t.Errorf("counted %+v", used)
		}
		open, err := os.Create(filepath.Join(a, "open"))
		if err != nil {
			t.Fatal(err)
		}
		defer open.Close()
		_, err = open.Write(make([]byte, 1<<20))
		if err := errors.Join(err, open.Sync(), os.Remove(open.Name())); err != nil {
			t.Fatal(err)
		}
		now, ok, err := Measure(a)
		if err != nil || !ok || now.Bytes < used.Bytes+1<<20 || now.Inodes != used.Inodes+1 {
			t.Errorf("with an open file without a name: %+v, %v, %v; before: %+v", now, ok, err, used)
		}
	})
}

// compare returns the count of a project, and fails the test if a walk finds another usage.
func compare(t *testing.T, dir string) diskusage.Usage {
	t.Helper()
	unix.Sync() // a file gets its blocks when it is written back
	counted, ok, err := Measure(dir)
	walked, walkErr := diskusage.Measure(t.Context(), dir)
	if err := errors.Join(err, walkErr); err != nil || !ok || counted != walked {
		t.Errorf("%s: counted %+v (%v), walked %+v, %v", dir, counted, ok, walked, err)
	}
	return counted
}

func TestWritesBeyondALimitFail(t *testing.T) {
	onEach(t, func(t *testing.T, dir string, full error) {
		a := newProject(t, &Projects{}, dir, "a")
		if err := Limit(a, 2<<20); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(a, "file")
		if err := writeAsContainer(file, 4<<20); !errors.Is(err, full) {
			t.Errorf("a write beyond the limit: %v, want %v", err, full)
		}
		unix.Sync()
		if used, _, err := Measure(a); err != nil || used.Bytes > 2<<20 || used.Bytes < 1<<20 {
			t.Errorf("a full project uses %+v, %v", used, err)
		}
		if err := errors.Join(Limit(a, 0), writeAsContainer(file, 4<<20)); err != nil {
			t.Errorf("without a limit: %v", err)
		}
		// A limit below what is used makes the next write fail.
		if err := Limit(a, 1<<20); err != nil {
			t.Fatal(err)
		}
		if err := writeAsContainer(file+"2", 1<<20); !errors.Is(err, full) {
			t.Errorf("a write to a project that is too large: %v", err)
		}
	})
}

// Only the directories store the IDs. Another agent finds them there, and an ID is free when its directory is gone.
func TestIDsAreKeptAndFreed(t *testing.T) {
	onEach(t, func(t *testing.T, dir string, _ error) {
		a, b := newProject(t, &Projects{}, dir, "a"), newProject(t, &Projects{}, dir, "b")
		if idOf(t, a) != first || idOf(t, b) != first+1 {
			t.Errorf("the IDs %d and %d are not the lowest", idOf(t, a), idOf(t, b))
		}
		write(t, filepath.Join(a, "file"), 1<<20)
		if ok, err := (&Projects{}).Assign(a); err != nil || !ok || idOf(t, a) != first {
			t.Errorf("a project that was assigned again: %v, %v, ID %d", ok, err, idOf(t, a))
		}
		if err := errors.Join(Limit(a, 1<<30), Release(a), os.RemoveAll(a), Release(a)); err != nil {
			t.Fatal(err)
		}
		unix.Sync()
		// xfs frees the inodes of removed files in the background.
		eventually.Nothing(t, func() string {
			left := usedBy(t, dir, first)
			if left.unused() {
				return ""
			}
			return fmt.Sprintf("of a removed project there is %+v", left)
		})
		if c := newProject(t, &Projects{}, dir, "c"); idOf(t, c) != first {
			t.Errorf("a later project has ID %d", idOf(t, c))
		}
	})
}

func TestIDsOfOthersStayTheirs(t *testing.T) {
	onEach(t, func(t *testing.T, dir string, _ error) {
		names := filepath.Join(t.TempDir(), "projid")
		if err := os.WriteFile(names, fmt.Appendf(nil, "people:%d\n", first), 0o644); err != nil {
			t.Fatal(err)
		}
		theirs := filepath.Join(dir, "theirs")
		if err := os.Mkdir(theirs, 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := open(theirs)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := setProject(f, first+1); err != nil {
			t.Fatal(err)
		}
		if err := limit(f, first+2, 100); err != nil {
			t.Fatal(err)
		}
		if a := newProject(t, &Projects{Names: names}, dir, "a"); idOf(t, a) != first+3 {
			t.Errorf("got ID %d", idOf(t, a))
		}
		if _, ok, err := Measure(theirs); ok || err != nil {
			t.Errorf("a project of others is read as the agent's: %v", err)
		}
	})
}

func TestReadingAProjectIsFasterThanAWalk(t *testing.T) {
	onEach(t, func(t *testing.T, dir string, _ error) {
		a := newProject(t, &Projects{}, dir, "a")
		for i := range *files {
			write(t, filepath.Join(a, fmt.Sprint(i/1000), fmt.Sprint(i)), 0)
		}
		compare(t, a)
		begin := time.Now()
		walked, err := diskusage.Measure(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		walk := time.Since(begin)
		begin = time.Now()
		if _, _, err := Measure(a); err != nil {
			t.Fatal(err)
		}
		read := time.Since(begin)
		if t.Logf("%+v: read in %v, walked in %v", walked, read, walk); read > walk/10 {
			t.Errorf("reading %v takes as long as a walk, %v", read, walk)
		}
	})
}

func TestNothingIsCountedWithoutQuotas(t *testing.T) {
	dir := t.TempDir()
	if s, err := StateOf(dir); err != nil || s.Counts {
		t.Skipf("the file system of %s has project quotas: %v", dir, err)
	}
	if ok, err := (&Projects{}).Assign(dir); ok || err != nil {
		t.Errorf("assigned %v, %v", ok, err)
	}
	if _, ok, err := Measure(dir); ok || err != nil {
		t.Errorf("measured %v, %v", ok, err)
	}
	if err := errors.Join(Limit(dir, 1), Release(dir), Release(filepath.Join(dir, "none"))); err != nil {
		t.Error(err)
	}
	if _, _, err := Measure(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that does not exist: %v", err)
	}
}

// writeAsContainer writes a file bit by bit without CAP_SYS_RESOURCE. Containers lack it by default, and ext4 does not
// limit processes that have it.
func writeAsContainer(name string, bytes int) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with this goroutine
		result <- func() error {
			header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			var sets [2]unix.CapUserData
			if err := unix.Capget(&header, &sets[0]); err != nil {
				return err
			}
			sets[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE
			if err := unix.Capset(&header, &sets[0]); err != nil {
				return err
			}
			f, err := os.Create(name)
			if err != nil {
				return err
			}
			piece := make([]byte, 64<<10)
			for written := 0; written < bytes && err == nil; written += len(piece) {
				_, err = f.Write(piece)
			}
			return errors.Join(err, f.Close())
		}()
	}()
	return <-result
}

func newProject(t *testing.T, p *Projects, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if ok, err := p.Assign(path); err != nil || !ok {
		t.Fatalf("assign a project: %v, %v", ok, err)
	}
	return path
}

func idOf(t *testing.T, path string) uint32 {
	t.Helper()
	f, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	id, ok, err := projectOf(f)
	if err != nil || !ok {
		t.Fatalf("%s is no project: %v", path, err)
	}
	return id
}

func usedBy(t *testing.T, dir string, id uint32) block {
	t.Helper()
	f, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := read(f, id)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, name string, bytes int) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), tryWrite(name, bytes)); err != nil {
		t.Fatal(err)
	}
}

func tryWrite(name string, bytes int) error { return os.WriteFile(name, make([]byte, bytes), 0o644) }
