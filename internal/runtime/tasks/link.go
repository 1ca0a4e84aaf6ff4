package tasks

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/pidfd"
	"github.com/berth-run/berth/internal/base/poll"
	"github.com/berth-run/berth/internal/base/sysmon"
	"github.com/berth-run/berth/internal/runtime/tasks/fifos"
)

// link is the connection to the shim. It starts a shim when none answers.
type link struct {
	config Config
	// pidfds has a pidfd of each container's first process. A shim that is started gets them: they know the exits of
	// processes that have ended since the shim before.
	pidfds func() map[string]*os.File
	held   *fifos.Held

	mu     sync.Mutex
	client *ttrpc.Client
	shim   *peer // that was connected last
	closed bool

	checking atomic.Bool // whether check is in progress
}

// errClosed reports that the runtime has ended.
var errClosed = errors.New("the runtime has ended")

// call calls the shim. If the shim ends meanwhile, call starts another and repeats the call, with repeated set.
func (l *link) call(ctx context.Context, do func(shim taskapi.TTRPCTaskService, repeated bool) error) error {
	const (
		attempts = 10 // a shim that always ends is a fault that a caller must see
		quick    = time.Second
		pause    = 20 * time.Millisecond // times the number of attempts, after the second
	)
	failed := 0
	for repeated := false; ; repeated = true {
		client, err := l.connect()
		if err != nil {
			return err
		}
		begin := time.Now()
		err = do(taskapi.NewTTRPCTaskClient(client), repeated)
		if !errors.Is(err, ttrpc.ErrClosed) {
			if err != nil && ctx.Err() != nil {
				go l.check(client)
			}
			return native(err)
		}
		l.drop(client)
		if failed++; time.Since(begin) > quick {
			failed = 1
		}
		if failed == attempts {
			return fmt.Errorf("call shim: it has ended %d times during the call: %w", attempts, errdefs.ErrUnavailable)
		}
		if failed > 2 {
			time.Sleep(time.Duration(failed) * pause)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// native converts an error of a call to the shim. The client of ttrpc returns an error of the context as it is, and
// ToNative would make it an unknown one.
func native(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return errgrpc.ToNative(err)
}

// connect returns the connection, after it has made one if there is none.
func (l *link) connect() (*ttrpc.Client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errClosed
	}
	if l.client != nil {
		return l.client, nil
	}
	conn, err := l.dial()
	if err == nil && hasEnded(conn) {
		_ = conn.Close()
		err = errors.Join(errEnded, l.forget())
	}
	if err == nil && l.outdated(conn) {
		err = l.upgrade(conn)
		_ = conn.Close()
		if err == nil {
			conn, err = l.awaitUpgrade()
		}
	}
	if err != nil {
		l.awaitEnd()
		if err := l.start(); err != nil {
			return nil, fmt.Errorf("start shim: %w", err)
		}
		if conn, err = l.dial(); err != nil {
			return nil, fmt.Errorf("connect to shim: %w", err)
		}
	}
	closed := make(chan struct{})
	l.client = ttrpc.NewClient(conn, ttrpc.WithOnClose(sync.OnceFunc(func() { close(closed) })))
	if shim, err := peerOf(conn); err == nil {
		l.remember(&shim)
		go l.follow(l.client, shim.pid, closed)
	}
	return l.client, nil
}

// end ends the shim when the runtime has no containers, and waits a moment until it has ended: its program is a file of
// the runtime, which the administrator may want to remove. A container that only the shim knows would keep the shim for
// ever.
func (l *link) end() error {
	conn, err := l.dial()
	if err != nil {
		return nil // it has ended
	}
	client := ttrpc.NewClient(conn)
	defer func() { _ = client.Close() }()
	shim, err := peerOf(conn)
	if err != nil {
		return nil // it has ended
	}
	defer shim.close()
	const limit = 2 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_, err = taskapi.NewTTRPCTaskClient(client).Shutdown(ctx, &taskapi.ShutdownRequest{})
	if err != nil && !errors.Is(err, ttrpc.ErrClosed) {
		return fmt.Errorf("end shim: %w", native(err))
	}
	if pidfd.Await(shim.pidfd, limit) {
		return nil
	}
	l.config.Log.Warn("shim has containers that the runtime does not know, killing it", "pid", shim.pid)
	if err := l.signal(shim, unix.SIGKILL); err != nil {
		return err
	}
	pidfd.Await(shim.pidfd, limit)
	return nil
}

// dial connects to the socket of the shim. It does not wait: the socket is a file.
func (l *link) dial() (net.Conn, error) {
	return (&net.Dialer{}).DialContext(context.Background(), "unix", l.config.Socket)
}

// awaitUpgrade connects to a shim that becomes another version.
func (l *link) awaitUpgrade() (net.Conn, error) {
	var conn net.Conn
	var err error
	poll.Pace{First: 5 * time.Millisecond, Limit: 10 * time.Second}.Until(func() bool {
		conn, err = l.dial()
		return err == nil
	})
	return conn, err
}

// current returns the connection, or nil if there is none.
func (l *link) current() *ttrpc.Client {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.client
}

// drop forgets a connection that is closed.
func (l *link) drop(client *ttrpc.Client) {
	_ = client.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client == client {
		l.client = nil
	}
}

// close ends the connection. The shim runs on.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.client != nil {
		_ = l.client.Close()
	}
	l.remember(nil)
}

// remember replaces the shim that was connected last. Call it with the lock.
func (l *link) remember(shim *peer) {
	if l.shim != nil {
		l.shim.close()
	}
	l.shim = shim
}

// awaitEnd waits until all threads of the shim before have ended. The kernel closes the shim's connections earlier than
// it kills the OCI runtimes that the shim has executed, and the next shim must not meet those at work on its
// containers. The wait is short: a thread that waits for a file system may never end. Call awaitEnd with the lock.
func (l *link) awaitEnd() {
	const limit = time.Second
	if l.shim != nil {
		pidfd.Await(l.shim.pidfd, limit)
	}
}

// start starts a shim and waits until it serves.
func (l *link) start() error {
	ready, serving, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	defer serving.Close()
	messages, stderr, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stderr.Close()
	files := []*os.File{serving}
	var ids []string // an argument each: the length of one argument is limited
	for id, file := range l.pidfds() {
		ids, files = append(ids, id), append(files, file)
	}
	// The shim outlives this call and this process.
	command := exec.CommandContext(context.Background(), l.config.Program, append([]string{"serve",
		"-tasks=" + l.config.bundles(), "-exits=" + l.config.exits(), "-socket=" + l.config.Socket,
		"-events=" + l.config.Events, "-ready=3"}, ids...)...)
	command.Dir = "/"
	command.Stderr = stderr
	command.ExtraFiles = files
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := sysmon.Start(command); err != nil {
		_ = messages.Close()
		return err
	}
	go forward(messages, l.config.Log)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = command.Wait() // the next call notices the end
	}()
	_ = serving.Close()
	const limit = 30 * time.Second
	_ = ready.SetReadDeadline(time.Now().Add(limit))
	if _, err := ready.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("it does not serve: %w", err)
	}
	return nil
}

// forward writes what the shim reports to the log.
func forward(messages io.ReadCloser, log *slog.Logger) {
	defer messages.Close()
	for lines := bufio.NewScanner(messages); lines.Scan(); {
		log.Warn("shim reports", "message", lines.Text())
	}
}
