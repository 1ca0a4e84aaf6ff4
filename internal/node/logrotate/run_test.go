package logrotate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/base/looptest"
	"github.com/berth-run/berth/internal/base/roottest"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/podlog"
)

// container writes a log as a runtime does: to the file that it opened last.
type container struct {
	t    *testing.T
	path string
	// refuse, if not nil, is the error of ReopenContainerLog.
	refuse error

	mu      sync.Mutex
	file    *os.File
	line    int
	reopens int
}

func newContainer(t *testing.T) *container {
	c := &container{t: t, path: filepath.Join(t.TempDir(), "0.log")}
	c.open()
	t.Cleanup(func() { _ = c.file.Close() })
	return c
}

func (c *container) open() {
	f, err := os.OpenFile(c.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		c.t.Fatal(err)
	}
	if c.file != nil {
		_ = c.file.Close()
	}
	c.file = f
}

func (c *container) ReopenContainerLog(context.Context, *runtimeapi.ReopenContainerLogRequest,
	...grpc.CallOption) (*runtimeapi.ReopenContainerLogResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reopens++
	if c.refuse != nil {
		return nil, c.refuse
	}
	c.open()
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}

// write appends n numbered lines of about 1,000 bytes.
func (c *container) write(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n {
		_, err := fmt.Fprintf(c.file, "%s stdout F %01000d\n", time.Now().UTC().Format(time.RFC3339Nano), c.line)
		if err != nil {
			c.t.Error(err)
			return
		}
		c.line++
	}
}

func (c *container) set(refuse error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = refuse
}

// complete fails the test unless every line exists once and in order.
func (c *container) complete() {
	c.t.Helper()
	var log strings.Builder
	if err := podlog.Read(c.t.Context(), c.path, podlog.Options{}, &log); err != nil {
		c.t.Fatal(err)
	}
	next := 0
	for line := range strings.Lines(log.String()) {
		if want := fmt.Sprintf("%01000d\n", next); line != want {
			c.t.Fatalf("line %d is %q", next, line)
		}
		next++
	}
	if next != c.line {
		c.t.Fatalf("%d lines, want %d", next, c.line)
	}
}

func (c *container) files() []string {
	names, err := filepath.Glob(filepath.Join(filepath.Dir(c.path), "*"))
	if err != nil {
		c.t.Fatal(err)
	}
	return names
}

func (c *container) status(s pod.ContainerState) *pod.Observed {
	return &pod.Observed{UID: "u", Containers: []pod.ContainerStatus{{ID: "c", Name: "app", State: s, LogPath: c.path}}}
}

// rotator returns a rotator and its table of observed pods.
func rotator(t *testing.T, c *container, l Limits) (*Rotator, *store.Table[types.UID, *pod.Observed]) {
	table := store.New[types.UID, *pod.Observed]()
	return New(Options{Runtime: c, Observed: table, Limits: l, Workers: 1, Now: time.Now,
		Log: slog.New(slog.DiscardHandler)}), table
}

// run runs a rotator until the test ends.
func run(t *testing.T, r *Rotator) {
	t.Cleanup(looptest.Start(t, r.Run, context.Canceled))
}

func compressed(c *container) (n int) {
	for _, f := range c.files() {
		if strings.HasSuffix(f, ".gz") {
			n++
		}
	}
	return n
}

// 60 MB at 50 MB/s: no line is lost or doubled, and no file exceeds the limit by more than is written in the documented
// time.
func TestFastWriter(t *testing.T) {
	c := newContainer(t)
	r, table := rotator(t, c, Limits{MaxSize: 10 << 20, MaxFiles: 100})
	table.Put("u", c.status(pod.StateRunning))
	run(t, r)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	largest := int64(0)
	for range 60 {
		c.write(1000)
		if info, err := os.Stat(c.path); err == nil {
			largest = max(largest, info.Size())
		}
		<-tick.C
	}
	c.complete()
	if most := int64(10<<20 + 50e6); largest > most {
		t.Errorf("a file had %d bytes, want at most %d", largest, most)
	}
	eventually.True(t, "older files are compressed", func() bool {
		return compressed(c) >= 2 && len(c.files()) <= compressed(c)+2
	})
	c.complete()
}

// The number of files stays limited, however much is written.
func TestNumberOfFilesIsLimited(t *testing.T) {
	c := newContainer(t)
	r, table := rotator(t, c, Limits{MaxSize: 100 << 10, MaxFiles: 3})
	table.Put("u", c.status(pod.StateRunning))
	run(t, r)
	for n := 1; n <= 6; n++ {
		c.write(150)
		eventually.True(t, "rotated", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.reopens >= n
		})
	}
	eventually.True(t, "three files", func() bool { return len(c.files()) == 3 && compressed(c) == 1 })
}

// A log without writes costs nothing: it is watched and has no next check.
func TestIdleLogIsOnlyWatched(t *testing.T) {
	c := newContainer(t)
	c.write(1)
	r, _ := rotator(t, c, Limits{MaxSize: 1 << 20, MaxFiles: 3})
	var err error
	if r.watch, err = newWatcher(); err != nil {
		t.Fatal(err)
	}
	defer r.watch.Close()
	r.update(c.status(pod.StateRunning).Containers[0])
	for r.checkDue(t.Context()); r.logs[c.path].rotating; r.checkDue(
		t.Context()) { // the first check covers all its files
		r.finish(t.Context(), <-r.done)
	}
	if next := r.checkDue(t.Context()); !next.IsZero() || !r.logs[c.path].watched {
		t.Fatalf("an idle log is due at %v, watched: %v", next, r.logs[c.path].watched)
	}
	c.write(1)
	for r.checkDue(t.Context()).IsZero() { // until the write is noticed
		r.handleWrites(<-r.watch.events())
	}
}

// A runtime rotates the log itself. The files are compressed and limited without a rotation here.
func TestLogRotatedByTheRuntime(t *testing.T) {
	c := newContainer(t)
	r, table := rotator(t, c, Limits{MaxSize: 1 << 20, MaxFiles: 4})
	table.Put("u", c.status(pod.StateRunning))
	run(t, r)
	for n := range 3 {
		c.write(10)
		c.mu.Lock()
		if err := os.Rename(c.path, fmt.Sprint(c.path, ".20260301-12000", n)); err != nil {
			t.Fatal(err)
		}
		c.open()
		c.mu.Unlock()
		c.write(1)
		eventually.True(t, "older files are compressed", func() bool { return compressed(c) == n })
	}
	c.complete()
	if c.reopens != 0 {
		t.Errorf("the runtime was called %d times to reopen the log", c.reopens)
	}
}

// Between the two steps of a runtime that rotates there is no log, as after a rotation that was interrupted.
func TestRuntimeHasTimeToOpenItsNextLog(t *testing.T) {
	c := newContainer(t)
	r, _ := rotator(t, c, Limits{MaxSize: 1 << 20, MaxFiles: 4})
	if err := os.Rename(c.path, c.path+".20260301-120000"); err != nil {
		t.Fatal(err)
	}
	for failures := range ownRotation + 1 {
		res := job{r: r, path: c.path, id: "c", running: true, failures: failures}.do(t.Context())
		if reopened := c.reopens > 0; reopened != (failures == ownRotation) || reopened == (res.err != nil) {
			t.Errorf("after %d checks without a log: reopened %v, %v", failures, reopened, res.err)
		}
	}
}

// When the runtime fails to reopen the log, the rotator retries. Until then the lines stay in the file that readers
// expect.
func TestFailedReopenIsRetried(t *testing.T) {
	c := newContainer(t)
	c.set(errors.New("not now"))
	r, table := rotator(t, c, Limits{MaxSize: 100 << 10, MaxFiles: 10})
	table.Put("u", c.status(pod.StateRunning))
	run(t, r)
	c.write(150)
	eventually.True(t, "asked twice", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.reopens >= 2
	})
	c.write(10)
	c.set(nil)
	eventually.True(t, "rotated", func() bool { return len(c.files()) == 2 })
	c.write(10)
	c.complete()
}

// If an agent is killed between renaming and reopening, the next agent completes the rotation.
func TestInterruptedRotationIsCompleted(t *testing.T) {
	c := newContainer(t)
	c.write(5)
	if err := os.Rename(c.path, c.path+".20260301-120000"); err != nil {
		t.Fatal(err)
	}
	r, table := rotator(t, c, Limits{MaxSize: 1 << 20, MaxFiles: 3})
	table.Put("u", c.status(pod.StateRunning))
	run(t, r)
	eventually.True(t, "reopened", func() bool { _, err := os.Stat(c.path); return err == nil })
	c.write(5)
	c.complete()
}

// The log of an ended container is limited too, without the runtime.
func TestLogOfEndedContainerIsRotated(t *testing.T) {
	c := newContainer(t)
	c.write(400)
	_ = c.file.Close()
	r, table := rotator(t, c, Limits{MaxSize: 100 << 10, MaxFiles: 3})
	table.Put("u", c.status(pod.StateExited))
	run(t, r)
	eventually.True(t, "compressed", func() bool { return compressed(c) == 1 && len(c.files()) == 2 })
	if info, err := os.Stat(c.path); err != nil || info.Size() != 0 || info.Mode().Perm() != 0o640 {
		t.Errorf("the new file is %v, %v", info, err)
	}
	if c.reopens != 0 {
		t.Error("the runtime was called to reopen the log")
	}
	c.complete()
}

// On a full disk a log is rotated, and compressed once there is room.
func TestFullDiskDelaysCompression(t *testing.T) {
	c := newContainer(t)
	dir := filepath.Dir(c.path)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("needs to mount:", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	c.open()
	c.write(300)
	filler := filepath.Join(dir, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for size := 64 << 10; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	_ = f.Close()
	r, table := rotator(t, c, Limits{MaxSize: 100 << 10, MaxFiles: 3})
	table.Put("u", c.status(pod.StateRunning))
	run(t, r)
	eventually.True(t, "rotated", func() bool { return len(c.files()) >= 3 })
	c.complete()
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "compressed", func() bool { return compressed(c) == 1 && len(c.files()) == 2 })
	c.complete()
}

// A file is not compressed while a process has it open for writing.
func TestCompressWaitsForWriters(t *testing.T) {
	c := newContainer(t)
	c.write(3)
	if err := compress(t.Context(), c.path); !errors.Is(err, errWritten) {
		t.Fatalf("compressed while it is open for writing: %v", err)
	}
	_ = c.file.Close()
	if err := compress(t.Context(), c.path); err != nil {
		t.Fatal(err)
	}
	if got := c.files(); !slices.Equal(got, []string{c.path + ".gz"}) {
		t.Errorf("files are %v", got)
	}
}

// Nobody answers a call about one log, and another one is rotated all the same.
func TestALogThatDoesNotAnswerDelaysNoOther(t *testing.T) {
	roottest.Need(t, "mounting")
	stuck, c := newContainer(t), newContainer(t)
	release, err := roottest.Hang(filepath.Dir(stuck.path))
	if err != nil {
		t.Fatal(err)
	}
	r, table := rotator(t, c, Limits{MaxSize: 100 << 10, MaxFiles: 3})
	table.Put("stuck", stuck.status(pod.StateRunning))
	run(t, r)
	t.Cleanup(func() { // before the end of run, which waits for the check
		if err := release(); err != nil {
			t.Error(err)
		}
	})
	c.write(150)
	table.Put("u", c.status(pod.StateRunning))
	eventually.True(t, "rotated", func() bool { return len(c.files()) == 2 })
}
