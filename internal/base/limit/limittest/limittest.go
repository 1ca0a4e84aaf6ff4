package limittest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-run/berth/internal/base/limit"
)

// SlowClientsEnd checks that a server ends the connections of clients that do not finish a header, do not finish a
// body, or send no request. path is one that the server answers with any status, also without credentials. The check
// uses the clock of package synctest, so that it knows the exact times and does not wait for them.
func SlowClientsEnd(t *testing.T, server *http.Server, path string) {
	t.Helper()
	for _, c := range []struct {
		name, text string
		want       time.Duration
		answered   bool
	}{
		{"nothing", "", limit.Header, false},
		{"half of a header", "GET " + path + " HTTP/1.1\r\nHost: ", limit.Header, false},
		{"half of a body", "POST " + path + " HTTP/1.1\r\nHost: node\r\nContent-Length: 2\r\n\r\nx", limit.BodyTime,
			true},
		{"a request and then nothing", "GET " + path + " HTTP/1.1\r\nHost: node\r\n\r\n", limit.Idle, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answer, took := send(t, server, c.text)
				if strings.HasPrefix(answer, "HTTP/1.1 ") != c.answered || took != c.want {
					t.Errorf("the server ended the connection after %v with the answer %q, want the end after %v",
						took, answer, c.want)
				}
			})
		})
	}
}

// send serves one connection whose client sends a text. It returns the answer, and the time until the server has closed
// the connection.
func send(t *testing.T, server *http.Server, text string) (answer string, took time.Duration) {
	t.Helper()
	client, accepted := net.Pipe()
	began := time.Now()
	l := &listener{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
	l.conns <- accepted
	// The copy can serve again after a call of Close.
	s := &http.Server{Handler: server.Handler, ReadTimeout: server.ReadTimeout,
		ReadHeaderTimeout: server.ReadHeaderTimeout, WriteTimeout: server.WriteTimeout, IdleTimeout: server.IdleTimeout,
		ErrorLog: server.ErrorLog}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	if _, err := io.WriteString(client, text); err != nil {
		t.Fatal(err)
	}
	if err := client.SetReadDeadline(began.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(client)
	if err != nil {
		t.Errorf("the server does not end the connection: %v", err)
	}
	took = time.Since(began)
	if err := errors.Join(client.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("serve: %v", err)
	}
	return string(got), took
}

// Fill opens connections from 127.0.0.1 to a server until this client has the most that the server allows, and checks
// that the server closes one more. The caller calls end to close them all.
func Fill(ctx context.Context, address string, most int) (end func(), err error) {
	var open []net.Conn
	end = func() {
		for _, c := range open {
			_ = c.Close()
		}
	}
	for range most + 1 {
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}).DialContext(ctx, "tcp", address)
		if err != nil {
			end()
			return nil, err
		}
		open = append(open, c)
	}
	surplus := open[most]
	err = surplus.SetReadDeadline(time.Now().Add(limit.Header / 2)) // an idle connection may end later
	if err == nil {
		if _, err = surplus.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			end()
			return nil, fmt.Errorf("the server keeps connection %d of one client open", most+1)
		}
	}
	return end, nil
}

// Another returns a client that connects from 127.0.0.2 and accepts every certificate.
func Another() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext:       (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
	}}
}

// listener accepts the connections of a channel.
type listener struct {
	conns  chan net.Conn
	closed chan struct{}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error { close(l.closed); return nil }

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "test", Net: "unix"} }
