package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/api/servertest"
	"github.com/berth-run/berth/internal/base/archive/archivetest"
	"github.com/berth-run/berth/internal/base/lock"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/follow"
	"github.com/berth-run/berth/internal/cli/process"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/record/timeline"
)

// preparedErrors are errors of which a command line alone is not the cause.
var preparedErrors = []struct {
	name, words string
	run         func(t *testing.T) result
	root        bool // the case needs root
}{
	{"followed logs beyond the limit", "logs app=web:", func(t *testing.T) result {
		a := servertest.Start(t)
		labelled(a, "one")
		labelled(a, "two")
		return berth(a, "", "logs", "-l", "app=web", "-f", "--max-log-requests", "1")
	}, false},
	{"archive to a terminal", "image save x:", func(t *testing.T) result {
		screen := terminalOf(t)
		var stderr bytes.Buffer
		status := Main([]string{"--socket", "/none", "image", "save", "x", "-o", "-"}, nil, screen, &stderr)
		return result{Err: stderr.String(), Status: status}
	}, false},
	{"second signal", "agent:", func(*testing.T) result {
		forced := make(chan struct{})
		close(forced)
		hangs := make(chan struct{})
		defer close(hangs)
		return printed("agent", process.Until(forced, func() error { <-hangs; return nil }))
	}, false},
	{"third interrupt of a run", "run:", func(*testing.T) result {
		return printed("run", abandoned(follow.ErrAbandoned))
	}, false},
	{"interrupt while the agent starts", "run:", func(t *testing.T) result {
		signals := make(chan os.Signal, 1)
		signals <- syscall.SIGINT
		_, err := embed(t.Context(), func(error) {}, embedded{agent: newFakeAgent()}, signals)
		return printed("run", err)
	}, false},
	{"end of the agent of a run", "run:", func(t *testing.T) result {
		return endOfAgent(t, errors.New("no disk"))
	}, false},
	{"end of the agent without an error", "run:", func(t *testing.T) result { return endOfAgent(t, nil) }, false},
	{"pods that are not ready", "run -:", func(t *testing.T) result {
		a := servertest.Start(t)
		a.OnDelete(func(p *corev1.Pod) { go a.Remove(podKey(p)) })
		return berth(a, "metadata: {name: web}\nspec: {containers: [{name: app}]}", "run", "--timeout", "50ms", "-")
	}, false},
	{"configuration for an agent that runs", "run -:", func(t *testing.T) result {
		return berth(servertest.Start(t), "metadata: {name: web}", "run", "--config", "x.yaml", "-")
	}, false},
	{"detached pods without an agent", "run -:", func(*testing.T) result {
		return berthAt("/none.sock", "metadata: {name: web}", "run", "--detach", "-")
	}, false},
	{"no pods to run", "run -:", func(t *testing.T) result {
		return berth(servertest.Start(t), "", "run", "-")
	}, false},
	{"pod that stays", "delete pod web api:", func(t *testing.T) result {
		a := servertest.Start(t)
		running(a, "web", "app")
		running(a, "api", "app")
		a.OnDelete(func(*corev1.Pod) {})
		return berth(a, "", "delete", "pod", "web", "api", "--timeout", "100ms")
	}, false},
	{"two pods that are not there", "delete pod web api:", func(t *testing.T) result {
		return berth(servertest.Start(t), "", "delete", "pod", "web", "api")
	}, false},
	{"agent that hangs", "delete pod web:", func(t *testing.T) result {
		return berthAt(hanging(t), "", "delete", "pod", "web", "--timeout", "50ms")
	}, false},
	{"agent that answers nothing", "get pods web:", func(t *testing.T) result {
		return berthAt(hanging(t), "", "get", "pods", "web", "--request-timeout", "50ms")
	}, false},
	{"followed pod that cannot become ready", "run -:", func(t *testing.T) result {
		a := servertest.Start(t)
		a.OnDelete(func(p *corev1.Pod) { go a.Remove(podKey(p)) })
		a.OnApply(func(p *corev1.Pod) {
			a.Change(podKey(p), func(p *corev1.Pod) {
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{
					Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImageNeverPull",
						Message: "image is not present"}}}}
			})
		})
		return berth(a, "metadata: {name: web}\nspec: {containers: [{name: app}]}", "run", "--exit-when-ready", "-")
	}, false},
	{"runtime that hangs", "explain:", func(t *testing.T) result {
		c, err := cri.New("unix://"+hanging(t), cri.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err = c.Images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer from runtime") {
			t.Errorf("%v", err)
		}
		return printedNext("explain", err)
	}, false},
	{"library that gave up", "agent:", func(*testing.T) result {
		return printedNext("agent", fmt.Errorf("register plugin: %w", context.DeadlineExceeded))
	}, false},
	{"port of the page that is in use", "ui:", func(t *testing.T) result {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		return berth(servertest.Start(t), "", "ui", "--port", strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}, false},
	{"page that cannot be written", "ui:", func(t *testing.T) result {
		return berth(servertest.Start(t), "", "ui", "--export", "/none/page.html")
	}, false},
	{"picture that cannot be written", "trace web:", func(t *testing.T) result {
		a := servertest.Start(t)
		a.SetTimelines(timeline.Timeline{Namespace: "default", Name: "web", What: "pod start"})
		return berth(a, "", "trace", "web", "--svg", "/none/web.svg")
	}, false},
	{"local port that is in use", "port-forward web ", func(t *testing.T) result {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		a := servertest.Start(t)
		running(a, "web", "app")
		port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
		return berth(a, "", "port-forward", "web", port+":80", "--address", "127.0.0.1")
	}, false},
	{"local port that is no number", "port-forward web x:80:", forwardOf("x:80"), false},
	{"port 0", "port-forward web 0:", forwardOf("0"), false},
	{"local port 0 of nothing", "port-forward web none:", forwardOf("none"), false},
	{"local port beyond the range", "port-forward web 99999:80:", forwardOf("99999:80"), false},
	{"port of a pod without names", "port-forward api http:", forwardOf("http"), false},
	{"empty archive", "restore ", func(t *testing.T) result { return restoreOf(t, "", nil) }, false},
	{"archive of another program", "restore ", func(t *testing.T) result {
		return restoreOf(t, "config.dump", nil)
	}, false},
	{"archive with a broken origin", "restore ", func(t *testing.T) result {
		return restoreOf(t, "berth.json", nil)
	}, false},
	{"archive without a pod", "restore ", func(t *testing.T) result {
		return restoreOf(t, "berth.json", map[string]any{})
	}, false},
	{"archive of no app container", "restore ", func(t *testing.T) result {
		return restoreOf(t, "berth.json", map[string]any{"container": "init", "pod": servertest.Pod("old", "app")})
	}, false},
	{"restored pod that is there", "restore ", func(t *testing.T) result {
		return restoreOf(t, "berth.json", map[string]any{"container": "app", "pod": servertest.Pod("web", "app")})
	}, false},
	{"restore on a Docker Engine", "restore /none.tar:", func(t *testing.T) result {
		a := servertest.Start(t)
		a.SetStatus(api.Status{Runtime: api.Runtime{Name: "docker"}})
		return berth(a, "", "restore", "/none.tar")
	}, false},
	{"checkpoint that another command writes", "checkpoint web:", func(t *testing.T) result {
		a := servertest.Start(t)
		running(a, "web", "app")
		return berth(a, "", "checkpoint", "web", "-o", strings.TrimSuffix(file(t, "web.tar.part", ""), ".part"))
	}, false},
	{"checkpoint that cannot be written", "checkpoint web:", func(t *testing.T) result {
		a := servertest.Start(t)
		running(a, "web", "app")
		return berth(a, "", "checkpoint", "web", "-o", "/none/web.tar")
	}, false},
	{"debug container of a pod that ends", "debug:", func(t *testing.T) result {
		a := servertest.Start(t)
		p := running(a, "web", "app")
		a.Finish(podKey(p), 0)
		_, err := follow.Ephemeral(t.Context(), client.New(a.Socket), p, "debugger", &bytes.Buffer{},
			func(corev1.ContainerState) bool { return false })
		return printed("debug", err)
	}, false},
	{"image archive of a runtime", "runtime:", func(t *testing.T) result {
		return printed("runtime", importInto(t.Context(), nil, "/none.tar"))
	}, false},
	{"checkpoint that cannot be loaded", "restore ", func(t *testing.T) result {
		a := servertest.Start(t)
		a.FailLoads(errors.New("no space left on device"))
		archive := archiveOf(t, "berth.json", map[string]any{"container": "app", "pod": servertest.Pod("old", "app")})
		return berth(a, "", "restore", file(t, "web.tar", archive))
	}, false},
	{"CPUs of another version", "top node:", func(t *testing.T) result {
		return berthAt(answering(t, `{"kind":"Topology","cpus":"all"}`), "", "top", "node")
	}, false},
	{"topology of another version", "topology:", func(t *testing.T) result {
		return berthAt(answering(t, `{"kind":"Topology","cpus":"all"}`), "", "topology")
	}, false},
	{"flags of the last agent that cannot be read", "doctor:", func(t *testing.T) result {
		return rooted(filepath.Join(file(t, "root", ""), "below"), "doctor")
	}, false},
	{"machine that cannot be checked", "doctor:", func(t *testing.T) result {
		return rooted(filepath.Join(file(t, "root", ""), "below"), "doctor", "--config", file(t, "config.yaml",
			"{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration}"))
	}, false},
	{"systemctl that is missing", "init:", func(t *testing.T) result {
		t.Setenv("PATH", "/none")
		return berthAt("/none", "", "init", "--prefix", t.TempDir())
	}, false},
	{"systemctl that fails", "init:", func(t *testing.T) result {
		bin := t.TempDir()
		if err := os.WriteFile(filepath.Join(bin, "systemctl"), []byte("#!/bin/sh\necho no units; exit 1\n"),
			0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
		t.Setenv("PATH", bin)
		return berthAt("/none", "", "init", "--prefix", t.TempDir())
	}, false},
	{"configuration directory that cannot be made", "init:", func(t *testing.T) result {
		return initOver(t, "etc/berth", "")
	}, false},
	{"unit directory that cannot be made", "init:", func(t *testing.T) result {
		return initOver(t, "etc/systemd", "/none/systemd")
	}, false},
	{"unit that cannot be written", "init:", func(t *testing.T) result {
		return initOver(t, "etc/systemd/system", "/proc")
	}, false},
	{"prefix relative to a directory that is gone", "init:", func(t *testing.T) result {
		inNoDirectory(t)
		return berthAt("/none", "", "init", "--prefix", "here")
	}, false},
	{"root relative to a directory that is gone", "init:", func(t *testing.T) result {
		inNoDirectory(t)
		return rooted("here", "init", "--print", "unit")
	}, false},
	{"unit that was changed", "init:", func(t *testing.T) result {
		prefix := t.TempDir()
		unit := filepath.Join(prefix, "etc/systemd/system/berth.service")
		if err := errors.Join(os.MkdirAll(filepath.Dir(unit), 0o755), os.WriteFile(unit, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		return berthAt("/none", "", "init", "--prefix", prefix)
	}, false},
	{"manifests that cannot be written", "init:", func(t *testing.T) result {
		return berthAt("/none", "", "init", "--prefix", file(t, "prefix", ""))
	}, false},
	{"agent on a root in use", "agent:", locked("agent"), true},
	{"reset of a root in use", "reset:", locked("reset", "--yes"), true},
	{"runtime on a root in use", "runtime:", locked("runtime", "--listen", "unix:///none/cri.sock"), true},
	{"images of a root in use", "image ls:", locked("image", "ls"), true},
	{"root directory that cannot be", "runtime:", func(t *testing.T) result {
		return rooted(filepath.Join(file(t, "root", ""), "below"), "runtime", "--listen", "unix:///none/cri.sock")
	}, true},
	{"files of a root directory that is not there", "get pods:", func(t *testing.T) result {
		return rooted(filepath.Join(t.TempDir(), "none"), "get", "pods")
	}, false},
	{"images of a root directory that cannot be", "image ls:", func(t *testing.T) result {
		root := filepath.Join(t.TempDir(), "root")
		if err := os.Symlink("/none/root", root); err != nil {
			t.Fatal(err)
		}
		return rooted(root, "image", "ls")
	}, true},
	{"files of a root directory that cannot be", "get pods:", func(t *testing.T) result {
		return rooted(filepath.Join(file(t, "root", ""), "below"), "get", "pods")
	}, false},
}

// unreached are the errors of internal/cli that no test can make through a command line, by where they are.
var unreached = []string{
	// The tests run as root.
	"reset.go: this command needs root",
	"setup/setup.go: this command needs root",
	"dockershim/command.go: this command needs root",
	// The command needs a Docker Engine first.
	"dockershim/command.go: --network-plugin=%s is not supported",
	"dockershim/command.go: listen on %s: systemd passed %d sockets, want 1",
	// The command needs a started runtime first; alone.txtar has it.
	"runtime.go: load image %s: %w",
	// A guard: the terminal has been found to be one.
	"top/follow.go: read keys from the terminal: %w",
	"stream/terminal.go: make terminal raw: %w",
	// A guard: /proc names this program.
	"setup/setup.go: find this program: %w",
	// The text of a flag's error; the rows of wrong flags have it.
	"command/exit.go: a variable",
	// A guard: a pod with a named port 0 is not valid.
	"stream/port.go: port %q: it is 0",
	// A guard: the client always reports why a watch has ended.
	"follow/ephemeral.go: wait for container %q: the agent closed the watch",
	// Main has its own texts, or prints nothing.
	"explain/explain.go: a pod would not be admitted",
	"checkpoint/restore.go: the agent has read the image",
	"delete.go: --timeout has passed",
}

// errorSites returns the texts of the errors that internal/cli makes or adds to a cause, as patterns. The keys are the
// file and the format.
func errorSites(t *testing.T) map[string]*regexp.Regexp {
	t.Helper()
	sites := map[string]*regexp.Regexp{}
	verb := regexp.MustCompile(`%[a-z]`)
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			if !makesError(call.Fun) {
				return true
			}
			format, ok := literal(call.Args[0])
			if !ok {
				format = "a variable"
			}
			sites[path+": "+format] = regexp.MustCompile(verb.ReplaceAllString(regexp.QuoteMeta(format), ".+"))
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, where := range unreached {
		if sites[where] == nil {
			t.Errorf("there is no error %s", where)
		}
	}
	return sites
}

// literal returns the value of a text in the source, which may consist of several parts.
func literal(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		x, okX := literal(e.X)
		y, okY := literal(e.Y)
		return x + y, okX && okY
	}
	return "", false
}

// makesError reports whether a call is errors.New or fmt.Errorf.
func makesError(f ast.Expr) bool {
	made, ok := f.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	from, ok := made.X.(*ast.Ident)
	return ok && (from.Name == "errors" && made.Sel.Name == "New" || from.Name == "fmt" && made.Sel.Name == "Errorf")
}

// printed is what Main prints of an error of a command.
func printed(name string, err error) result {
	var stderr bytes.Buffer
	root, cmd := &cobra.Command{Use: "berth"}, &cobra.Command{Use: name}
	root.AddCommand(cmd)
	command.PrintError(&stderr, cmd, err)
	return result{Err: stderr.String(), Status: 1}
}

// printedNext is printed for an error without a next step of its own.
func printedNext(name string, err error) result {
	r := printed(name, err)
	r.Err = strings.Replace(r.Err, command.AnyNext, "look", 1)
	return r
}

func endOfAgent(t *testing.T, failure error) result {
	a := newFakeAgent()
	a.fail <- failure
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := embed(ctx, cancel, embedded{a, a.ready}, nil)
	return printed("run", err)
}

// hanging returns the socket of a server that answers nothing.
func hanging(t *testing.T) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "hangs.sock")
	l, err := net.Listen("unix", socket) // connections wait for an Accept that never comes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return socket
}

// terminalOf returns a terminal to write to.
func terminalOf(t *testing.T) *os.File {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	screen, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = screen.Close(), keyboard.Close() })
	return screen
}

// forwardOf forwards a port of a pod, web, that names its port http, or of api, which names none.
func forwardOf(port string) func(t *testing.T) result {
	return func(t *testing.T) result {
		a := servertest.Start(t)
		running(a, "api", "app")
		p := running(a, "web", "app")
		a.Change(podKey(p), func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}
		})
		pod := "web"
		if port == "http" {
			pod = "api"
		}
		return berth(a, "", "port-forward", pod, port)
	}
}

// answering returns the socket of a server that answers this text to each request.
func answering(t *testing.T, text string) string {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "answers.sock"))
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, text) // the command's error shows what it has read
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return l.Addr().String()
}

// initOver runs init below a prefix in which a path is a link to a target, or a file for "".
func initOver(t *testing.T, path, target string) result {
	t.Helper()
	prefix := t.TempDir()
	path = filepath.Join(prefix, path)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if target == "" {
		err = errors.Join(err, os.WriteFile(path, nil, 0o600))
	} else {
		err = errors.Join(err, os.Symlink(target, path))
	}
	if err != nil {
		t.Fatal(err)
	}
	return berthAt("/none", "", "init", "--prefix", prefix)
}

// inNoDirectory makes the working directory one that was removed.
func inNoDirectory(t *testing.T) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
}

// restoreOf restores an archive of archiveOf.
func restoreOf(t *testing.T, name string, content any) result {
	t.Helper()
	a := servertest.Start(t)
	running(a, "web", "app")
	return berth(a, "", "restore", file(t, "web.tar", archiveOf(t, name, content)))
}

// archiveOf returns an archive with one file. Its content is a value as JSON, or no JSON for nil.
func archiveOf(t *testing.T, name string, content any) string {
	t.Helper()
	if name == "" {
		return ""
	}
	text := []byte("broken")
	if content != nil {
		var err error
		if text, err = json.Marshal(content); err != nil {
			t.Fatal(err)
		}
	}
	return string(archivetest.Files(t, archivetest.File{Name: name, Content: text}))
}

// locked runs a command on a root directory that an agent has locked.
func locked(args ...string) func(t *testing.T) result {
	return func(t *testing.T) result {
		root := t.TempDir()
		unlock, err := lock.Root(t.Context(), root)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unlock() }()
		return rooted(root, args...)
	}
}

// rooted runs a command on a root directory without an agent.
func rooted(root string, args ...string) result {
	var out, stderr bytes.Buffer
	status := Main(slices.Concat([]string{"--root-dir", root}, args), strings.NewReader(""), &out, &stderr)
	return result{out.String(), stderr.String(), status}
}
