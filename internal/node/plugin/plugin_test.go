package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/berth-run/berth/internal/base/looptest"
)

// fake is a plugin on its own socket.
type fake struct {
	registration.UnimplementedRegistrationServer
	info    *registration.PluginInfo
	results chan string
	silent  atomic.Int32 // number of calls without an answer
}

func (f *fake) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	if f.silent.Add(-1) >= 0 {
		return nil, errors.New("not yet")
	}
	return f.info, nil
}

func (f *fake) NotifyRegistrationStatus(_ context.Context,
	s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	f.results <- fmt.Sprint(s.GetPluginRegistered(), s.GetError())
	return &registration.RegistrationStatusResponse{}, nil
}

// serve starts a plugin on a socket; stop removes it.
func serve(t *testing.T, socket, kind, name string, silent int32) (f *fake, stop func()) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	f = &fake{info: &registration.PluginInfo{Type: kind, Name: name, SupportedVersions: []string{"1.0.0"}},
		results: make(chan string, 100)}
	f.silent.Store(silent)
	s := grpc.NewServer()
	registration.RegisterRegistrationServer(s, f)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Serve(l) }()
	stop = func() { s.GracefulStop(); <-ended } // answers to results that a test has seen still arrive
	t.Cleanup(stop)
	return f, stop
}

// book records the calls of a handler.
type book struct {
	watcher *Watcher
	events  chan string
	refuse  atomic.Bool
	// deregister, if it is not nil, holds each Deregister until it can be received from.
	deregister chan struct{}
}

func (b *book) Register(_ context.Context, p Plugin) error {
	if b.refuse.CompareAndSwap(true, false) {
		return errors.New("no room")
	}
	b.events <- "register " + p.Name + " " + filepath.Base(p.Endpoint)
	return nil
}

func (b *book) Deregister(p Plugin) {
	b.events <- "deregister " + p.Name + " " + filepath.Base(p.Endpoint)
	if b.deregister != nil {
		<-b.deregister
	}
}

func want(t *testing.T, from <-chan string, text string) {
	t.Helper()
	select {
	case got := <-from:
		if got != text {
			t.Fatalf("got %q, want %q", got, text)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("no %q in 20 s", text)
	}
}

// watch registers a recording handler for the plugins in a directory.
func watch(t *testing.T, dir string) *book {
	t.Helper()
	b := &book{events: make(chan string, 100)}
	b.watcher = New(Options{Dir: dir, Handlers: map[string]Handler{TypeCSI: b}, Log: slog.New(slog.DiscardHandler)})
	run(t, b.watcher)
	return b
}

// run runs a Watcher until the test ends.
func run(t *testing.T, w *Watcher) {
	t.Helper()
	t.Cleanup(looptest.Start(t, w.Run, context.Canceled))
}

func TestPluginsRegisterAndDeregister(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plugins_registry")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	there, stop := serve(t, filepath.Join(dir, "a.sock"), TypeCSI, "a.example.com", 0)
	b := watch(t, dir)
	want(t, b.events, "register a.example.com a.sock")
	want(t, there.results, "true")

	// The same name on another socket.
	stop()
	want(t, b.events, "deregister a.example.com a.sock")
	again, stop := serve(t, filepath.Join(dir, "a.sock"), TypeCSI, "a.example.com", 2)
	want(t, b.events, "register a.example.com a.sock")
	want(t, again.results, "true")

	// Directories that are created later, and hidden ones.
	if err := os.MkdirAll(filepath.Join(dir, "deep", "er"), 0o700); err != nil {
		t.Fatal(err)
	}
	hiddenPlugin, _ := serve(t, filepath.Join(dir, ".hidden"), TypeCSI, "hidden", 0)
	deep, _ := serve(t, filepath.Join(dir, "deep", "er", "b.sock"), TypeCSI, "b", 0)
	want(t, b.events, "register b b.sock")
	want(t, deep.results, "true")
	stop()
	want(t, b.events, "deregister a.example.com a.sock")
	if len(hiddenPlugin.results) > 0 {
		t.Error("a hidden socket was called")
	}
	reg := prometheus.NewPedanticRegistry()
	if err := b.watcher.Register(reg); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "deep", "er", "b.sock")
	if err := testutil.GatherAndCompare(reg, strings.NewReader(fmt.Sprintf(`
# HELP plugin_manager_total_plugins Sockets of plugins, and those of registered plugins.
# TYPE plugin_manager_total_plugins gauge
plugin_manager_total_plugins{socket_path=%[1]q,state="actual_state_of_world"} 1
plugin_manager_total_plugins{socket_path=%[1]q,state="desired_state_of_world"} 1
`, socket))); err != nil {
		t.Error(err)
	}
}

func TestReplacedSocket(t *testing.T) {
	dir := t.TempDir()
	b := watch(t, dir)
	serve(t, filepath.Join(dir, "a.sock"), TypeCSI, "old", 0)
	want(t, b.events, "register old a.sock")
	serve(t, filepath.Join(dir, ".next"), TypeCSI, "new", 0)
	if err := os.Rename(filepath.Join(dir, ".next"), filepath.Join(dir, "a.sock")); err != nil {
		t.Fatal(err)
	}
	want(t, b.events, "deregister old a.sock")
	want(t, b.events, "register new a.sock")
}

// A plugin that is back before its removal has been handled is registered after that, not before.
func TestSocketThatIsBackSoon(t *testing.T) {
	dir := t.TempDir()
	b := &book{events: make(chan string, 100), deregister: make(chan struct{})}
	b.watcher = New(Options{Dir: dir, Handlers: map[string]Handler{TypeCSI: b}, Log: slog.New(slog.DiscardHandler)})
	run(t, b.watcher)
	release := sync.OnceFunc(func() { close(b.deregister) })
	t.Cleanup(release)
	first, stop := serve(t, filepath.Join(dir, "a.sock"), TypeCSI, "a", 0)
	want(t, b.events, "register a a.sock")
	want(t, first.results, "true")
	stop()
	want(t, b.events, "deregister a a.sock")
	serve(t, filepath.Join(dir, "a.sock"), TypeCSI, "a", 0)
	serve(t, filepath.Join(dir, "b.sock"), TypeCSI, "b", 0)
	want(t, b.events, "register b b.sock") // and not a, which was there before
	release()
	want(t, b.events, "register a a.sock")
}

func TestFailedRegistrationIsRetried(t *testing.T) {
	dir := t.TempDir()
	b := watch(t, dir)
	b.refuse.Store(true)
	f, _ := serve(t, filepath.Join(dir, "a.sock"), TypeCSI, "a", 0)
	want(t, f.results, "falseno room")
	want(t, b.events, "register a a.sock")
	want(t, f.results, "true")
	other, _ := serve(t, filepath.Join(dir, "b.sock"), "Toaster", "b", 0)
	want(t, other.results, `falsethis agent does not support plugins of type "Toaster"`)
}

// The directory cannot be created at first.
func TestWatchIsRetried(t *testing.T) {
	root := t.TempDir()
	blocker := filepath.Join(root, "plugins")
	if err := os.WriteFile(blocker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	results := make(chan string, 100)
	b := &book{events: make(chan string, 1)}
	w := New(Options{Dir: filepath.Join(blocker, "registry"), Handlers: map[string]Handler{TypeCSI: b},
		Log: slog.New(failures(results))})
	run(t, w)
	want(t, results, "cannot watch for plugins, retrying")
	if err := errors.Join(os.Remove(blocker), os.MkdirAll(w.opts.Dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	serve(t, filepath.Join(w.opts.Dir, "a.sock"), TypeCSI, "a", 0)
	want(t, b.events, "register a a.sock")
}

// failures is a log that passes on the messages of errors.
type failures chan<- string

func (failures) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }
func (f failures) Handle(_ context.Context, r slog.Record) error {
	f <- r.Message
	return nil
}
func (f failures) WithAttrs([]slog.Attr) slog.Handler { return f }
func (f failures) WithGroup(string) slog.Handler      { return f }
