package cli

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/client"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/server/servertest"
)

// fakeAgent is an agent that does nothing until it is told to.
type fakeAgent struct {
	ready chan struct{}
	fail  chan error
	last  error // what Run returns after its context
}

func newFakeAgent() *fakeAgent {
	return &fakeAgent{ready: make(chan struct{}), fail: make(chan error, 1)}
}

func (a *fakeAgent) Ready() <-chan struct{} { return a.ready }

func (a *fakeAgent) Run(ctx context.Context) error {
	select {
	case err := <-a.fail:
		return err
	case <-ctx.Done():
		return a.last
	}
}

func TestEmbed(t *testing.T) {
	broken := errors.New("broken")
	t.Run("ends with the command", func(t *testing.T) {
		a := newFakeAgent()
		close(a.ready)
		a.last = broken
		leave, err := embed(t.Context(), func(error) {}, a, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := leave(); !errors.Is(err, broken) {
			t.Errorf("leave: %v", err)
		}
	})
	t.Run("cannot start", func(t *testing.T) {
		a := newFakeAgent()
		a.fail <- broken
		ctx, cancel := context.WithCancelCause(t.Context())
		if _, err := embed(ctx, cancel, a, nil); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("fails later", func(t *testing.T) {
		a := newFakeAgent()
		close(a.ready)
		ctx, cancel := context.WithCancelCause(t.Context())
		leave, err := embed(ctx, cancel, a, nil)
		if err != nil {
			t.Fatal(err)
		}
		a.fail <- broken
		<-ctx.Done()
		if err := context.Cause(ctx); !errors.Is(err, broken) {
			t.Errorf("cause: %v", err)
		}
		if err := leave(); err != nil {
			t.Errorf("leave says it again: %v", err)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		signals := make(chan os.Signal, 1)
		signals <- syscall.SIGINT
		_, err := embed(t.Context(), func(error) {}, newFakeAgent(), signals)
		if exit, ok := errors.AsType[*exitError](err); !ok || exit.code != exitAbandoned {
			t.Errorf("got %v", err)
		}
	})
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	ctx, forced, stop := onSignals(t.Context(), slog.New(slog.DiscardHandler))
	defer stop()
	hangs := make(chan struct{})
	defer close(hangs)
	result := make(chan error, 1)
	go func() { result <- until(forced, func() error { <-hangs; return nil }) }()
	signal := func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	}
	signal()
	<-ctx.Done()
	signal()
	if err := <-result; !errors.Is(err, errForced) {
		t.Errorf("got %v", err)
	}
}

// systemd is what systemd hears of the agent.
func systemd(t *testing.T) *net.UnixConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return c
}

func hear(t *testing.T, c *net.UnixConn) string {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	n, err := c.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

func TestNotify(t *testing.T) {
	c := systemd(t)
	t.Setenv("WATCHDOG_USEC", "20000")
	a := servertest.Start(t)
	a.SetHealth(errors.New("runtime does not answer"))
	ctx, cancel := context.WithCancel(t.Context())
	log := &record{text: make(chan string, 100)}
	done := make(chan error, 1)
	go func() { done <- notify(ctx, client.New(a.Socket), slog.New(slog.NewTextHandler(log, nil))) }()
	if got := hear(t, c); got != "READY=1" {
		t.Errorf("heard %s", got)
	}
	if got := <-log.text; !strings.Contains(got, "runtime does not answer") {
		t.Errorf("logged %s", got)
	}
	a.SetHealth(nil)
	if got := hear(t, c); got != "WATCHDOG=1" {
		t.Errorf("heard %s", got)
	}
	cancel()
	got := hear(t, c)
	for got == "WATCHDOG=1" {
		got = hear(t, c)
	}
	if got != "STOPPING=1" {
		t.Errorf("heard %s", got)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// record passes on what is logged.
type record struct{ text chan string }

func (r *record) Write(p []byte) (int, error) {
	select {
	case r.text <- string(p):
	default:
	}
	return len(p), nil
}

// The example has no fault, and no field that does nothing, also with every
// line that is commented out.
func TestExampleConfiguration(t *testing.T) {
	text, err := os.ReadFile("../../packaging/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	full := regexp.MustCompile(`(?m)^# ([a-zA-Z]+: )`).ReplaceAllString(string(text), "$1")
	for name, text := range map[string]string{"as it is": string(text), "in full": full} {
		_, warnings, err := config.Load(config.Flags{ConfigFile: file(t, "config.yaml", text)})
		if err != nil || len(warnings) > 0 {
			t.Errorf("%s: %v, %v", name, err, warnings)
		}
	}
}
