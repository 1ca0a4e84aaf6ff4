package servertest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	utilexec "k8s.io/client-go/util/exec"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/berth-run/berth/internal/api/server"
)

// execServer is the streaming server of a container runtime. Its commands do not touch the machine:
//
//	echo WORD...   writes the words
//	cat            writes its input
//	fail CODE      writes to standard error and exits with the code
//	size           writes the first size of its terminal
//	/bin/sh ...    is a shell in a terminal: it knows exit CODE, size, size N, which waits until the terminal has less
//	               than N columns, and raw TEXT, which writes the text unquoted
type execServer struct {
	streaming.Server
}

func newExecServer(t testing.TB) *execServer {
	t.Helper()
	web := httptest.NewUnstartedServer(nil)
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: web.Listener.Addr().String()}
	s, err := streaming.NewServer(config, commands{})
	if err != nil {
		t.Fatal(err)
	}
	web.Config.Handler = http.Handler(s)
	web.Start()
	t.Cleanup(web.Close)
	return &execServer{s}
}

// Streams prepares connections into pods, as a runtime does.
func (a *Agent) Streams() server.Streams { return a.exec }

// ExecURL prepares a command.
func (e *execServer) ExecURL(_ context.Context, p *corev1.Pod, o *corev1.PodExecOptions) (string, error) {
	r, err := e.GetExec(&runtimeapi.ExecRequest{
		ContainerId: string(p.UID) + "/" + o.Container, Cmd: o.Command,
		Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY,
	})
	if err != nil {
		return "", err
	}
	return r.Url, nil
}

// AttachURL prepares a connection to a process that echoes its input.
func (e *execServer) AttachURL(_ context.Context, p *corev1.Pod, o *corev1.PodAttachOptions) (string, error) {
	r, err := e.GetAttach(&runtimeapi.AttachRequest{
		ContainerId: string(p.UID) + "/" + o.Container, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY,
	})
	return r.GetUrl(), err
}

// PortForwardURL prepares a connection to ports that echo their input.
func (e *execServer) PortForwardURL(_ context.Context, p *corev1.Pod) (string, error) {
	r, err := e.GetPortForward(&runtimeapi.PortForwardRequest{PodSandboxId: string(p.UID)})
	return r.GetUrl(), err
}

type commands struct{}

// Attach writes the size of the terminal, if there is one, and then echoes its input. If the container's name is
// "endless", the process runs on when the input has ended.
func (commands) Attach(ctx context.Context, id string, in io.Reader, out, _ io.WriteCloser, tty bool,
	resize <-chan remotecommand.TerminalSize) error {
	if tty {
		size := <-resize
		if _, err := fmt.Fprintf(out, "%dx%d\n", size.Width, size.Height); err != nil {
			return err
		}
	}
	if in == nil {
		return nil
	}
	_, err := io.Copy(out, in)
	if strings.HasSuffix(id, "/endless") {
		<-ctx.Done()
	}
	return err
}

// PortForward writes the port and then echoes its input.
func (commands) PortForward(_ context.Context, _ string, port int32, stream io.ReadWriteCloser) error {
	if _, err := fmt.Fprintf(stream, "port %d\n", port); err != nil {
		return err
	}
	_, err := io.Copy(stream, stream)
	return err
}

// Exec runs one of the commands above.
func (commands) Exec(_ context.Context, _ string, cmd []string, in io.Reader, out, stderr io.WriteCloser, _ bool,
	resize <-chan remotecommand.TerminalSize) error {
	switch cmd[0] {
	case "echo":
		for _, word := range cmd[1:] {
			if _, err := fmt.Fprintln(out, word); err != nil {
				return err
			}
		}
		return nil
	case "cat":
		_, err := io.Copy(out, in)
		return err
	case "fail":
		fmt.Fprintln(stderr, "failed")
		code, err := strconv.Atoi(cmd[1])
		if err != nil {
			return err
		}
		return utilexec.CodeExitError{Err: errors.New("failed"), Code: code}
	case "size":
		size := <-resize
		_, err := fmt.Fprintf(out, "%dx%d\n", size.Width, size.Height)
		return err
	}
	if cmd[0] == "/bin/sh" {
		return shell(bufio.NewReader(in), out, resize)
	}
	return fmt.Errorf("no command %q", cmd[0])
}

// shell reads lines that end with the Enter of a terminal, and echoes them.
func shell(in *bufio.Reader, out io.Writer, resize <-chan remotecommand.TerminalSize) error {
	size := <-resize
	for {
		if _, err := io.WriteString(out, "$ "); err != nil {
			return err
		}
		line, err := in.ReadString('\r')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		command, rest, _ := strings.Cut(strings.TrimSuffix(line, "\r"), " ")
		answer := ""
		switch command {
		case "size":
			for less, _ := strconv.Atoi(rest); less > 0 && int(size.Width) >= less; {
				size = <-resize
			}
			answer = fmt.Sprintf("%dx%d", size.Width, size.Height)
		case "raw":
			if answer, err = strconv.Unquote(`"` + rest + `"`); err != nil {
				return err
			}
		case "exit":
			code, err := strconv.Atoi(rest)
			if err != nil || code == 0 {
				return err
			}
			return utilexec.CodeExitError{Err: errors.New("exit"), Code: code}
		}
		if _, err := fmt.Fprintf(out, "%s\r\n%s\r\n", line, answer); err != nil {
			return err
		}
	}
}
