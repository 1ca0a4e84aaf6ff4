package runtime_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/eventually"
)

var (
	floodSize  = flag.Int("flood", 60, "megabytes that a container writes in TestLogWithoutAgent")
	floodKills = flag.Int("flood-kills", 3, "how often TestLogWithoutAgent kills the agent meanwhile")
)

// logFiles returns the files of a log, oldest first.
func logFiles(t *testing.T, path string) []string {
	t.Helper()
	files, err := filepath.Glob(path + ".*")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	return append(files, path)
}

func logSize(t *testing.T, path string) (size int64) {
	t.Helper()
	for _, file := range logFiles(t, path) {
		if info, err := os.Stat(file); err == nil { // else it was just renamed
			size += info.Size()
		}
	}
	return size
}

// A container writes at full speed, and the agent is killed again and again. Every byte is in the log, in order. The
// container does not wait for an agent, and no file exceeds the limit.
func TestLogWithoutAgent(t *testing.T) {
	c := serveKillable(t)
	dir := c.dir
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("flood")})
	const length = 1000
	lines := *floodSize * 1_000_000 / (length + 1) / *floodKills // for each time without an agent
	var args []string
	for n := range *floodKills {
		args = append(args, "until", fmt.Sprint("/go", n), "then", "log", "10000000", strconv.Itoa(length),
			strconv.Itoa(lines), "then")
	}
	flood := c.container(t, id, pod, "flood", append(args, "print", "end", "then", "exit", "5")...)
	path := filepath.Join(dir, "logs", "flood.log")
	if got := c.status(t, flood).LogPath; got != path {
		t.Errorf("path of the log %q, want %q", got, path)
	}
	root := fmt.Sprintf("/proc/%d/root", c.pid(t, flood))
	begin := time.Now()
	for n := range *floodKills {
		before := logSize(t, path)
		if err := os.WriteFile(filepath.Join(root, fmt.Sprint("go", n)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		eventually.True(t, "the container writes", func() bool { return logSize(t, path) > before })
		c.kill(t)
		if n%2 == 0 {
			eventually.True(t, "all output is in the log without an agent", func() bool {
				return logSize(t, path) >= before+int64(lines*(length+1))
			})
		}
		c.start(t)
	}
	if code := c.exitCode(t, flood); code != 5 {
		t.Errorf("exit code %d, want 5", code)
	}
	t.Logf("%d MB in %s with %d kills", *floodSize, time.Since(begin), *floodKills)
	checkFlood(t, path, *floodKills, lines, length)
	c.end(t)
}

// checkFlood fails the test unless the log has the lines of each round in order, and then the last one.
func checkFlood(t *testing.T, path string, rounds, lines, length int) {
	t.Helper()
	next := 0
	for _, file := range logFiles(t, path) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if limit := testConfig("").LogMaxSize; int64(len(content)) > limit {
			t.Errorf("%s has %d bytes, want at most %d", file, len(content), limit)
		}
		for line := range bytes.Lines(content) {
			_, text, _ := bytes.Cut(line, []byte(" stdout F "))
			want := fmt.Sprintf("%0*d\n", length, next%lines)
			if next == rounds*lines {
				want = "end\n"
			}
			if string(text) != want {
				t.Fatalf("line %d of %d in %s is %.80q", next, rounds*lines, file, line)
			}
			next++
		}
	}
	if next != rounds*lines+1 {
		t.Errorf("%d lines, want %d", next, rounds*lines+1)
	}
}
