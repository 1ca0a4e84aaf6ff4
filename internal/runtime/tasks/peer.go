package tasks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/witness"
)

// peer is the process at the other end of a connection.
type peer struct {
	pid, pidfd int
	program    string
}

// errEnded means that the process at the other end of a connection has ended. The connection is open nevertheless if
// one of its threads waits for a file system that does not answer: the kernel closes the descriptors after the last
// thread.
var errEnded = errors.New("the shim has ended")

// peerOf returns the process at the other end of a connection, or errEnded. Close it.
func peerOf(conn net.Conn) (peer, error) {
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return peer{}, fmt.Errorf("find process of a connection: it is a %T", conn)
	}
	raw, err := unixConn.SyscallConn()
	if err != nil {
		return peer{}, err
	}
	var credentials *unix.Ucred
	if failed := raw.Control(func(fd uintptr) {
		credentials, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); failed != nil || err != nil {
		return peer{}, errors.Join(failed, err)
	}
	pid := int(credentials.Pid)
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return peer{}, errEnded
	}
	if err != nil {
		return peer{}, fmt.Errorf("open pidfd of process %d: %w", pid, err)
	}
	program, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
	if err != nil {
		_ = unix.Close(fd)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) { // a zombie has no program
			return peer{}, errEnded
		}
		return peer{}, err
	}
	return peer{pid, fd, program}, nil
}

func (p peer) close() { _ = unix.Close(p.pidfd) }

// signal signals the process if it is a shim: its number may belong to another process by now.
func (l *link) signal(p peer, signal unix.Signal) error {
	if !strings.HasPrefix(filepath.Base(p.program), filepath.Base(l.config.Program)) {
		return fmt.Errorf("signal shim: process %d runs %s", p.pid, p.program)
	}
	return unix.PidfdSendSignal(p.pidfd, signal, nil, 0)
}

// hasEnded reports whether the process at the other end of a connection has ended.
func hasEnded(conn net.Conn) bool {
	shim, err := peerOf(conn)
	if err == nil {
		shim.close()
	}
	return errors.Is(err, errEnded)
}

// follow drops a connection whose shim has ended, so that the calls in progress go to the next shim. The kernel closes
// the connection only after the last thread of the shim (package witness). Without a witness, check finds a shim that
// has ended after a call that took too long.
func (l *link) follow(client *ttrpc.Client, pid int, closed <-chan struct{}) {
	alive, err := witness.Open(pid)
	if err != nil {
		l.config.Log.Debug("cannot notice at once that the shim was killed", "err", err)
		return
	}
	defer alive.Close()
	go func() {
		<-closed
		_ = alive.Close()
	}()
	if witness.Await(alive) != nil { // the connection is closed
		return
	}
	const patience = time.Second
	select {
	case <-closed:
	case <-time.After(patience):
		l.config.Log.Error("shim has ended, but the kernel keeps its connection open: a thread of it waits for a file "+
			"system that does not answer; starting the next shim", "pid", pid, "after", patience)
		l.drop(client)
	}
}

// outdated reports whether the shim of a connection runs another program than the installed one.
func (l *link) outdated(conn net.Conn) bool {
	shim, err := peerOf(conn)
	if err != nil {
		return false // it has ended, and the next call finds that
	}
	defer shim.close()
	installed, err := filepath.EvalSymlinks(l.config.Program)
	return err == nil && shim.program != installed
}

// upgrade asks a shim of another version to become the installed program, and waits until it has closed the connection.
// It kills a shim that does not react.
func (l *link) upgrade(conn net.Conn) error {
	const limit = 10 * time.Second
	shim, err := peerOf(conn)
	if err != nil {
		return err
	}
	defer shim.close()
	l.config.Log.Info("shim of another version continues as the installed one", "pid", shim.pid,
		"running", shim.program)
	if err := l.signal(shim, unix.SIGUSR1); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	l.config.Log.Error("shim of another version does not react, replacing it", "pid", shim.pid, "after", limit)
	return errors.Join(err, l.killPeer(conn))
}

// check kills the shim of a connection if it does not answer at all. Call it after a call that took too long, which may
// be the fault of a single container.
func (l *link) check(client *ttrpc.Client) {
	if !l.checking.CompareAndSwap(false, true) {
		return
	}
	defer l.checking.Store(false)
	const limit = 10 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_, _ = taskapi.NewTTRPCTaskClient(client).Connect(ctx, &taskapi.ConnectRequest{})
	if ctx.Err() == nil {
		return // it has answered, or has ended
	}
	l.config.Log.Error("shim does not answer, replacing it", "after", limit)
	if err := l.kill(client); err != nil {
		l.config.Log.Error("cannot kill the shim, calls wait for it", "err", err)
	}
}

// kill kills the shim of a connection, and closes the connection. The next call starts another shim. If that has
// happened already, kill does nothing.
func (l *link) kill(client *ttrpc.Client) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if client == nil || l.client != client {
		return nil
	}
	conn, err := l.dial()
	if err == nil {
		defer conn.Close()
		err = l.killPeer(conn)
	} else {
		err = nil // it has ended
	}
	if err == nil {
		l.client = nil
		_ = client.Close()
	}
	return err
}

// killPeer kills the shim at the other end of a connection and makes way for the next one.
func (l *link) killPeer(conn net.Conn) error {
	shim, err := peerOf(conn)
	if err == nil {
		defer shim.close()
		err = l.signal(shim, unix.SIGKILL)
	}
	if err != nil && !errors.Is(err, errEnded) {
		return err
	}
	return l.forget()
}

// forget removes the socket of a shim that has been killed or has ended, and its lock. Such a shim does nothing any
// more, but has both open for as long as one of its threads cannot end.
func (l *link) forget() error {
	for _, name := range []string{l.config.Socket, l.config.Socket + ".lock"} {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("make way for the next shim: %w", err)
		}
	}
	return nil
}
