package runtime_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/eventually"
)

// attach attaches a client to the output of a container. The output ends with the streams, or when it is closed.
func (c *client) attach(t *testing.T, id string) (output *bufio.Scanner, leave func()) {
	t.Helper()
	answer, err := c.Attach(t.Context(), &cri.AttachRequest{ContainerId: id, Stdout: true, Stderr: true})
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(answer.Url)
	if err != nil {
		t.Fatal(err)
	}
	executor, err := remotecommand.NewSPDYExecutor(&rest.Config{}, http.MethodPost, at)
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	go func() {
		_ = writer.CloseWithError(executor.StreamWithContext(ctx,
			remotecommand.StreamOptions{Stdout: writer, Stderr: io.Discard}))
	}()
	return bufio.NewScanner(reader), leave
}

// next returns the number of the next line of workload log.
func next(t *testing.T, output *bufio.Scanner) int {
	t.Helper()
	if !output.Scan() {
		t.Fatalf("the output has ended: %v", output.Err())
	}
	n, err := strconv.Atoi(output.Text())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// copiesOpen counts the files of a process with a copy of a container's output.
func copiesOpen(pid int) (n int) {
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, link := range links {
		if to, _ := os.Readlink(link); strings.HasSuffix(to, ".copy") {
			n++
		}
	}
	return n
}

// Clients are attached to a container while its shim is killed. Each gets every line from its first on, also those that
// come after another client has left. The runtime reads the output only while it has clients.
func TestAttach(t *testing.T) {
	c := serveKillable(t)
	id, pod := c.sandbox(t, hostPod(c.client, "attach"))
	writer := c.container(t, id, pod, "writer", "log", "200", "10")
	if n := copiesOpen(c.process.Process.Pid); n != 0 {
		t.Errorf("the runtime has %d files of output open without a client", n)
	}
	staying, end := c.attach(t, writer)
	defer end()
	last := next(t, staying)
	leaving, leave := c.attach(t, writer[:20])
	next(t, leaving)
	if err := unix.Kill(shimPID(t, c.dir), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	const lines = 100
	check := func() {
		for range lines {
			n := next(t, staying)
			if n != last+1 {
				t.Fatalf("line %d follows line %d", n, last)
			}
			last = n
		}
	}
	check()
	for seen, i := next(t, leaving), 0; i < lines; i++ {
		if n := next(t, leaving); n != seen+1 {
			t.Fatalf("client that leaves: line %d follows line %d", n, seen)
		}
		seen++
	}
	leave()
	check()
	if err := unix.Kill(c.pid(t, writer), unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for staying.Scan() {
		if n, err := strconv.Atoi(staying.Text()); err != nil || n != last+1 {
			t.Fatalf("line %q follows line %d", staying.Text(), last)
		}
		last++
	}
	if err := staying.Err(); err != nil {
		t.Errorf("the stream of a container that has ended: %v", err)
	}
	log := strings.Fields(readFile(filepath.Join(c.dir, "logs", "writer.log")))
	if got := log[len(log)-1]; got != fmt.Sprintf("%010d", last) {
		t.Errorf("the last line in the log is %s, the client's is %d", got, last)
	}
	eventually.True(t, "the runtime closes the output", func() bool { return copiesOpen(c.process.Process.Pid) == 0 })
	if code := c.exitCode(t, writer); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := c.Attach(t.Context(), &cri.AttachRequest{ContainerId: writer, Stdout: true}); err == nil {
		t.Error("a client attaches to a container that has ended")
	}
	c.end(t)
}

// A client attaches to a container that an earlier runtime has started. Another one was attached when that was killed.
func TestAttachAfterRestart(t *testing.T) {
	c := serveKillable(t)
	id, pod := c.sandbox(t, hostPod(c.client, "restart"))
	writer := c.container(t, id, pod, "writer", "log", "200", "10")
	before, leave := c.attach(t, writer)
	last := next(t, before)
	c.kill(t)
	leave()
	c.start(t)
	after, leave := c.attach(t, writer)
	defer leave()
	first := next(t, after)
	if first <= last {
		t.Errorf("the client gets line %d, the one before had line %d", first, last)
	}
	const lines = 50
	for i := range lines {
		if n := next(t, after); n != first+1+i {
			t.Fatalf("line %d after %d lines from %d on", n, i+1, first)
		}
	}
	c.end(t)
}
