package process

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/api/servertest"
)

func TestSecondSignalEndsAtOnce(t *testing.T) {
	ctx, forced, stop := OnSignals(t.Context(), slog.New(slog.DiscardHandler))
	defer stop()
	hangs := make(chan struct{})
	defer close(hangs)
	result := make(chan error, 1)
	go func() { result <- Until(forced, func() error { <-hangs; return nil }) }()
	signal := func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	}
	signal()
	<-ctx.Done()
	signal()
	if err := <-result; !errors.Is(err, ErrForced) {
		t.Errorf("got %v", err)
	}
}

// systemd opens a notify socket and points NOTIFY_SOCKET to it.
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
	t.Setenv("WATCHDOG_USEC", "400000")
	a := servertest.Start(t)
	a.SetHealth(errors.New("runtime does not answer"))
	ctx, cancel := context.WithCancel(t.Context())
	log := &record{text: make(chan string, 100)}
	done := make(chan error, 1)
	go func() { done <- Notify(ctx, client.New(a.Socket), slog.New(slog.NewTextHandler(log, nil))) }()
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

// A service manager that does not read its socket does not keep the agent from ending.
func TestNotifyEndsAlthoughNobodyReads(t *testing.T) {
	c := systemd(t)
	t.Setenv("WATCHDOG_USEC", "2000")
	a := servertest.Start(t)
	a.SetHealth(nil)
	ctx, cancel := context.WithCancel(t.Context())
	log := &record{text: make(chan string, 100)}
	done := make(chan error, 1)
	go func() { done <- Notify(ctx, client.New(a.Socket), slog.New(slog.NewTextHandler(log, nil))) }()
	for got := ""; !strings.Contains(got, "cannot notify systemd"); {
		got = <-log.text // the queue is full
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := hear(t, c); got != "READY=1" {
		t.Errorf("the first message is %s", got)
	}
}

// record is a writer that sends each log line to text. It drops a line if no reader waits for it.
type record struct{ text chan string }

func (r *record) Write(p []byte) (int, error) {
	select {
	case r.text <- string(p):
	default:
	}
	return len(p), nil
}
