package dockerlog

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/base/logtest"
	"github.com/berth-run/berth/internal/docker/dockertest"
	"github.com/berth-run/berth/test/image"
)

const imageName = "berth.test/workload:1"

// box is a container with its log.
type box struct {
	Container
	daemon *dockertest.Daemon
}

// boxed makes a container whose output is copied, and starts it.
func boxed(t testing.TB, d *dockertest.Daemon, c *Copier, options map[string]string, cmd ...string) box {
	t.Helper()
	id := d.Create(t, imageName, cmd, func(_ *container.Config, h *container.HostConfig) {
		h.LogConfig = container.LogConfig{Type: Driver, Config: options}
	})
	b := box{Container{ID: id, File: File(d.Root(), id), Log: filepath.Join(t.TempDir(), "pod", "app", "0.log")}, d}
	if err := Create(b.Log); err != nil {
		t.Fatal(err)
	}
	c.Add(b.Container)
	if _, err := d.Client().ContainerStart(t.Context(), id, client.ContainerStartOptions{}); err != nil {
		t.Fatal(err)
	}
	return b
}

// finish waits for the end of a container, completes its log, and returns the text of its streams.
func (b box) finish(t testing.TB, c *Copier) map[string]string {
	t.Helper()
	b.daemon.Wait(t, b.ID)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.Drain(ctx, b.ID); err != nil {
		t.Fatal(err)
	}
	return texts(t, b.Log)
}

// texts returns the output that a log has, by stream.
func texts(t testing.TB, log string) map[string]string {
	t.Helper()
	content, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*strings.Builder{stdout: {}, stderr: {}}
	for line := range strings.Lines(string(content)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		if len(fields) != 4 || all[fields[1]] == nil {
			t.Fatalf("line %.100q", line)
		}
		if _, err := time.Parse(time.RFC3339Nano, fields[0]); err != nil {
			t.Fatal(err)
		}
		all[fields[1]].WriteString(fields[3])
		if fields[2] == "F" {
			all[fields[1]].WriteString("\n")
		}
	}
	return map[string]string{stdout: all[stdout].String(), stderr: all[stderr].String()}
}

// running runs a Copier until stop is called, or until the end of the test.
func running(t testing.TB) (c *Copier, stop func(), warnings *logtest.Lines) {
	t.Helper()
	warnings = &logtest.Lines{}
	c = New(slog.New(slog.NewTextHandler(warnings, &slog.HandlerOptions{Level: slog.LevelWarn})))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	stopped := false
	stop = func() {
		if cancel(); !stopped {
			stopped = true
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return c, stop, warnings
}

// gaps returns how many numbered lines are missing in a text, and in how many places.
func gaps(t testing.TB, text string, lines int) (missing, places int) {
	t.Helper()
	next := 0
	for line := range strings.Lines(text) {
		n, err := strconv.Atoi(strings.TrimSuffix(line, "\n"))
		if err != nil || n < next {
			t.Fatalf("line %q after %d: %v", line, next-1, err)
		}
		if n > next {
			missing, places = missing+n-next, places+1
		}
		next = n + 1
	}
	if next < lines {
		missing, places = missing+lines-next, places+1
	}
	return missing, places
}

func TestDocker(t *testing.T) {
	archive, err := image.Build(t.Context(), t.TempDir(), imageName)
	if err != nil {
		t.Fatal(err)
	}
	d := dockertest.Start(t, archive)
	t.Run("streams and parts", func(t *testing.T) { testStreams(t, d) })
	t.Run("rotation", func(t *testing.T) { testRotation(t, d) })
	t.Run("flood", func(t *testing.T) { testFlood(t, d) })
	t.Run("lag", func(t *testing.T) { testLag(t, d) })
	t.Run("restarts", func(t *testing.T) { testRestarts(t, d) })
	t.Run("removal", func(t *testing.T) { testRemoval(t, d) })
}

// Both streams, an empty line, and a line of 40,000 bytes without an end, which Docker writes in parts that share a
// time.
func testStreams(t *testing.T, d *dockertest.Daemon) {
	c, _, warnings := running(t)
	b := boxed(t, d, c, Options(), "print", "one", "", "ä\tb\"c\\", "then", "error", "failed", "then", "pour",
		"/dev/stdout", "40000")
	got := b.finish(t, c)
	if want := "one\n\nä\tb\"c\\\n" + strings.Repeat("x", 40000); got[stdout] != want || got[stderr] != "failed\n" {
		t.Errorf("%.100q", got)
	}
	content, err := os.ReadFile(b.Log)
	if parts := strings.Count(string(content), " stdout P "); err != nil || parts < 3 {
		t.Errorf("%d parts, %v", parts, err)
	}
	r, err := d.Client().ContainerInspect(t.Context(), b.ID, client.ContainerInspectOptions{})
	if err != nil || r.Container.LogPath != b.File {
		t.Errorf("Docker's log is %s, %v, want %s", r.Container.LogPath, err, b.File)
	}
	if warnings.String() != "" {
		t.Errorf("warnings: %s", warnings.String())
	}
}

// Docker rotates its files 40 times.
func testRotation(t *testing.T, d *dockertest.Daemon) {
	const lines = 20_000
	c, _, warnings := running(t)
	options := map[string]string{"max-size": "200k", "max-file": "30"}
	b := boxed(t, d, c, options, "log", strconv.Itoa(lines), "300", strconv.Itoa(lines))
	missing, _ := gaps(t, b.finish(t, c)[stdout], lines)
	if missing > 0 || warnings.String() != "" {
		t.Errorf("%d lines are missing, warnings: %s", missing, warnings.String())
	}
}

// A container writes as fast as it can. If the log lacks lines, there is a warning. No line is doubled.
func testFlood(t *testing.T, d *dockertest.Daemon) {
	const lines = 200_000
	c, _, warnings := running(t)
	began := time.Now()
	b := boxed(t, d, c, Options(), "log", "10000000", "100", strconv.Itoa(lines))
	text := b.finish(t, c)[stdout]
	took := time.Since(began)
	missing, places := gaps(t, text, lines)
	t.Logf("%d lines in %v, %.0f lines/s, %d are missing in %d places", lines, took, lines/took.Seconds(), missing,
		places)
	if (places > 0) != (warnings.Count("lacks lines") > 0) {
		t.Errorf("warnings: %s", warnings.String())
	}
}

// No Copier runs while a container writes more than Docker keeps. The log then gets all lines that Docker has kept: no
// line is missing after the first kept one.
func testLag(t *testing.T, d *dockertest.Daemon) {
	const lines, length, files = 60_000, 100, 3
	const size = 1_000_000
	c, stop, _ := running(t)
	options := map[string]string{"max-size": strconv.Itoa(size), "max-file": strconv.Itoa(files)}
	b := boxed(t, d, c, options, "wait", "2s", "then", "log", "10000000", strconv.Itoa(length), strconv.Itoa(lines))
	if err := c.Drain(t.Context(), b.ID); err != nil {
		t.Fatal(err)
	}
	stop()
	d.Wait(t, b.ID)
	c, _, _ = running(t)
	c.Add(b.Container)
	text := b.finish(t, c)[stdout]
	missing, places := gaps(t, text, lines)
	const around = `{"log":"\n","stream":"stdout","time":"2026-03-01T12:00:00.123456789Z"}` + "\n"
	stored := (lines - missing) * (len(around) + length)
	t.Logf("%d of %d lines are missing, the others have %d bytes in Docker's files", missing, lines, stored)
	if places != 1 || stored < (files-1)*size || stored > files*size+size/10 {
		t.Errorf("missing in %d places", places)
	}
}

// The Copier and dockerd end and start again while a container writes. The log has each line once that Docker has
// written. A dockerd that is killed loses what it has read from the container and not written yet.
func testRestarts(t *testing.T, d *dockertest.Daemon) {
	const lines = 3000
	c, stop, _ := running(t)
	b := boxed(t, d, c, Options(), "log", "1000", "50", strconv.Itoa(lines))
	for _, signal := range []unix.Signal{unix.SIGKILL, unix.SIGTERM} {
		info, err := os.Stat(b.Log)
		if err != nil {
			t.Fatal(err)
		}
		grown(t, b.Log, info.Size())
		stop()
		if err := d.Stop(signal); err != nil {
			t.Fatal(err)
		}
		if err := d.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		c, stop, _ = running(t)
		c.Add(b.Container)
	}
	text := b.finish(t, c)[stdout]
	missing, places := gaps(t, text, lines)
	t.Logf("%d lines are missing in %d places", missing, places)
	if want := written(t, b.File); text != want {
		t.Errorf("%d bytes, Docker has written %d", len(text), len(want))
	}
}

// written returns the output that Docker has written to a file.
func written(t testing.TB, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for line := range strings.Lines(string(content)) {
		if e, _, err := parse(nil, []byte(line)); err == nil { // else a part that the killed dockerd has left
			text.Write(e.text)
		}
	}
	return text.String()
}

// grown waits until a log has more bytes than before.
func grown(t testing.TB, log string, before int64) {
	t.Helper()
	eventually.True(t, "more in the log", func() bool {
		info, err := os.Stat(log)
		return err == nil && info.Size() > before
	})
}

// A container is removed while it runs. After Drain and Remove nothing is open, and its log stays.
func testRemoval(t *testing.T, d *dockertest.Daemon) {
	c, _, warnings := running(t)
	b := boxed(t, d, c, Options(), "print", "one", "then", "sleep")
	grown(t, b.Log, 0)
	if err := c.Drain(t.Context(), b.ID); err != nil {
		t.Fatal(err)
	}
	c.Remove(b.ID)
	if _, err := d.Client().ContainerRemove(t.Context(), b.ID, client.ContainerRemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	if got := texts(t, b.Log)[stdout]; got != "one\n" {
		t.Errorf("the log has %q", got)
	}
	eventually.Nothing(t, func() string { return strings.Join(openBelow(t, filepath.Dir(b.File), b.Log), ", ") })
	if warnings.String() != "" {
		t.Errorf("warnings: %s", warnings.String())
	}
}

// openBelow lists the open files of this process whose path begins with one of paths.
func openBelow(t testing.TB, paths ...string) (found []string) {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		target, _ := os.Readlink(link)
		for _, path := range paths {
			if strings.HasPrefix(target, path) {
				found = append(found, fmt.Sprint(link, " ", target))
			}
		}
	}
	return found
}
