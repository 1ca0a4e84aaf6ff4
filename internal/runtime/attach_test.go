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
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/eventually"
)

// attach attaches a client to the output of a container. The output ends with the streams, or when it is closed.
func (c *client) attach(t *testing.T, id string) (output *bufio.Scanner, leave func()) {
	t.Helper()
	return c.stream(t, &cri.AttachRequest{ContainerId: id, Stdout: true, Stderr: true},
		remotecommand.StreamOptions{Stderr: io.Discard})
}

// talk attaches a client with input to a container.
func (c *client) talk(t *testing.T, id string, terminal bool, input io.Reader) (output *bufio.Scanner, leave func()) {
	t.Helper()
	return c.stream(t, &cri.AttachRequest{ContainerId: id, Stdin: true, Stdout: true, Tty: terminal},
		remotecommand.StreamOptions{Stdin: input, Tty: terminal})
}

// longest is how long a client stays at most. A client that waits in vain fails its test then.
const longest = 3 * time.Minute

// stream attaches a client to a container. The output ends with the streams, or when it is closed.
func (c *client) stream(t *testing.T, r *cri.AttachRequest, o remotecommand.StreamOptions) (output *bufio.Scanner,
	leave func()) {
	t.Helper()
	answer, err := c.Attach(t.Context(), r)
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
	ctx, leave := context.WithTimeout(t.Context(), longest)
	reader, writer := io.Pipe()
	o.Stdout = writer
	go func() { _ = writer.CloseWithError(executor.StreamWithContext(ctx, o)) }()
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

// pipesOpen counts the files of a process with the input or a copy of the output of a container.
func pipesOpen(pid int) (n int) {
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, link := range links {
		if to, _ := os.Readlink(link); strings.HasSuffix(to, ".copy") || filepath.Base(to) == "stdin" {
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
	if n := pipesOpen(c.process.Process.Pid); n != 0 {
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
	eventually.True(t, "the runtime closes the output", func() bool { return pipesOpen(c.process.Process.Pid) == 0 })
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

// expectLine reads output until it has a line.
func expectLine(t *testing.T, output *bufio.Scanner, line string) {
	t.Helper()
	for output.Scan() {
		if strings.TrimSpace(output.Text()) == line {
			return
		}
	}
	t.Fatalf("the output has ended without %q: %v", line, output.Err())
}

// echo starts a container that repeats its input.
func (c *client) echo(t *testing.T, sandbox string, pod *cri.PodSandboxConfig, config *cri.ContainerConfig) string {
	t.Helper()
	config.Args, config.Stdin = []string{"echo"}, true
	return c.run(t, sandbox, pod, config)
}

// Each client types at once, and sees the answer. The shim and the runtime are killed meanwhile. The input of the
// container ends only when a client types so.
func TestAttachTerminal(t *testing.T) {
	c := serveKillable(t)
	id, pod := c.sandbox(t, hostPod(c.client, "typed"))
	echo := c.echo(t, id, pod, &cri.ContainerConfig{Metadata: &cri.ContainerMetadata{Name: "echo"}, Tty: true})
	const clients = 20
	for i := range clients {
		in, typed := io.Pipe()
		output, leave := c.talk(t, echo, true, in)
		_, _ = fmt.Fprintf(typed, "line %d\n", i)
		expectLine(t, output, fmt.Sprintf("read line %d", i))
		switch i {
		case clients - 2:
			c.kill(t)
			c.start(t)
		case clients - 1:
			if err := unix.Kill(shimPID(t, c.dir), unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(typed, "end\n")
			expectLine(t, output, "read end")
			_, _ = io.WriteString(typed, "\x04")
			expectLine(t, output, "end of input")
			for output.Scan() {
			}
			if err := output.Err(); err != nil {
				t.Errorf("the stream of a container that has ended: %v", err)
			}
		}
		_ = typed.Close()
		leave()
	}
	if code := c.exitCode(t, echo); code != 0 {
		t.Errorf("exit code %d", code)
	}
	eventually.True(t, "the runtime closes the streams", func() bool { return pipesOpen(c.process.Process.Pid) == 0 })
	c.end(t)
}

// Clients share the input of a container, and the container has it after they have left. With stdinOnce it ends with
// its first client.
func TestAttachInput(t *testing.T) {
	c := serveKillable(t)
	id, pod := c.sandbox(t, hostPod(c.client, "input"))
	always := c.echo(t, id, pod, &cri.ContainerConfig{Metadata: &cri.ContainerMetadata{Name: "always"}})
	watching, leave := c.attach(t, always)
	defer leave()
	const ends = 4 // two of each output
	eventually.True(t, "the client gets both outputs", func() bool { return pipesOpen(c.process.Process.Pid) == ends })
	for _, line := range []string{"one", "two"} {
		output, leave := c.talk(t, always, false, strings.NewReader(line+"\n"))
		for output.Scan() { // until the server has ended the stream, since the input has ended
		}
		if err := output.Err(); err != nil {
			t.Errorf("the stream of a client whose input has ended: %v", err)
		}
		leave()
		expectLine(t, watching, "read "+line)
	}
	once := c.echo(t, id, pod, &cri.ContainerConfig{Metadata: &cri.ContainerMetadata{Name: "once"}, StdinOnce: true})
	output, leave := c.talk(t, once, false, strings.NewReader("one\n"))
	defer leave()
	expectLine(t, output, "read one")
	expectLine(t, output, "end of input")
	if code := c.exitCode(t, once); code != 0 {
		t.Errorf("exit code %d", code)
	}
	c.end(t)
}
