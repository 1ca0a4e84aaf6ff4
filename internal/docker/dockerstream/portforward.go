package dockerstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// dialTimeout limits how long a process in the pod may take to accept a connection.
	dialTimeout = 30 * time.Second
	// lingering is how long a connection may be silent after its client has ended its side.
	lingering = time.Minute
)

// PortForward connects a client to a port of a pod.
func (s *Streams) PortForward(ctx context.Context, sandbox string, port int32, stream io.ReadWriteCloser) error {
	if port <= 0 || port > 65535 {
		return fmt.Errorf("forward port %d of pod sandbox %s: not a port", port, sandbox)
	}
	path, err := s.pods.NetNS(ctx, sandbox)
	if err != nil {
		return fmt.Errorf("forward port %d of pod sandbox %s: %w", port, sandbox, err)
	}
	conn, err := dial(ctx, path, port)
	if err != nil {
		return fmt.Errorf("forward port %d of pod sandbox %s: %w", port, sandbox, err)
	}
	defer func() { _ = conn.Close() }() // the copying has failed or ended
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	answers := answers{conn: conn}
	go func() { // it ends with its client, whose connection the caller closes
		_, _ = io.Copy(conn, stream)
		_ = conn.CloseWrite()
		answers.inputEnded.Store(true)
		_ = conn.SetReadDeadline(time.Now().Add(lingering))
	}()
	_, err = io.Copy(stream, &answers)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("forward port %d of pod sandbox %s: %w", port, sandbox, err)
	}
	return nil
}

// answers reads the output of the process in the pod. After the client has ended its side, a read fails if the process
// is silent for the time lingering.
type answers struct {
	conn       *net.TCPConn
	inputEnded atomic.Bool
}

func (a *answers) Read(p []byte) (int, error) {
	if a.inputEnded.Load() {
		if err := a.conn.SetReadDeadline(time.Now().Add(lingering)); err != nil {
			return 0, err
		}
	}
	return a.conn.Read(p)
}

// dial connects to a port of the loopback interface in a network namespace: over IPv4, else over IPv6. The path "" is
// the namespace of this process.
func dial(ctx context.Context, path string, port int32) (*net.TCPConn, error) {
	type result struct {
		conn *net.TCPConn
		err  error
	}
	done := make(chan result)
	go func() {
		// The thread is never unlocked, so it ends with the goroutine: no other goroutine runs in the namespace.
		runtime.LockOSThread()
		conn, err := dialHere(ctx, path, port)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

// dialHere moves the calling thread to a network namespace and dials there. A socket belongs to the namespace of the
// thread that makes it.
func dialHere(ctx context.Context, path string, port int32) (*net.TCPConn, error) {
	if path != "" {
		ns, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("open network namespace: %w", err)
		}
		defer func() { _ = ns.Close() }() // it is not read
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return nil, fmt.Errorf("enter network namespace %s: %w", path, err)
		}
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	var failed error
	for _, host := range []string{"127.0.0.1", "::1"} {
		conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
		if err == nil {
			return conn.(*net.TCPConn), nil
		}
		failed = errors.Join(failed, err)
	}
	return nil, failed
}
