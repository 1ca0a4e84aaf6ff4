package limit

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestRequestsOfOneClientAreBounded(t *testing.T) {
	release, busy := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(Requests(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		busy <- struct{}{}
		<-release
	}), Bounds{Requests: 1}, RefuseText))
	defer server.Close()
	done := make(chan int)
	go func() {
		r, err := http.Get(server.URL)
		if err != nil {
			done <- 0
			return
		}
		_ = r.Body.Close()
		done <- r.StatusCode
	}()
	<-busy
	r, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	if r.StatusCode != http.StatusTooManyRequests || r.Header.Get("Retry-After") == "" {
		t.Errorf("the request beyond the bound: %s", r.Status)
	}
	close(release)
	if code := <-done; code != http.StatusOK {
		t.Errorf("the request within the bound: %d", code)
	}
	go func() { <-busy }()
	if r, err = http.Get(server.URL); err != nil || r.StatusCode != http.StatusOK {
		t.Errorf("a request after the others: %v, %v", r, err)
	}
	_ = r.Body.Close()
}

func TestListenerClosesConnectionsBeyondTheBound(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	bound := Listener(l, Bounds{Connections: 2, AllConnections: 3})
	accepted := make(chan net.Conn, 10)
	go func() {
		for {
			c, err := bound.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func(from string) net.Conn {
		t.Helper()
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(context.Background(), "tcp",
			l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	closed := func(c net.Conn) bool { _, err := c.Read(make([]byte, 1)); return errors.Is(err, io.EOF) || err != nil }
	dial("127.0.0.1")
	first := <-accepted
	dial("127.0.0.1")
	<-accepted
	if !closed(dial("127.0.0.1")) {
		t.Error("a third connection of one client was accepted")
	}
	dial("127.0.0.2")
	<-accepted
	if !closed(dial("127.0.0.3")) {
		t.Error("a fourth connection of all clients was accepted")
	}
	_ = first.Close()
	_ = first.Close() // counts once
	dial("127.0.0.3")
	<-accepted
	if !closed(dial("127.0.0.4")) {
		t.Error("closing one connection twice made room for two")
	}
}

// A long answer to a request with a body goes on after the time for the body.
func TestBodiesEndsDeadlineWithTheBody(t *testing.T) {
	bodyOver, ended := make(chan error, 1), make(chan error, 1)
	server := httptest.NewServer(Bodies(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		bodyOver <- err
		<-r.Context().Done()
		ended <- r.Context().Err()
	})))
	defer server.Close()
	c, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nok"); err != nil {
		t.Fatal(err)
	}
	if err := <-bodyOver; err != nil {
		t.Errorf("read the body: %v", err)
	}
	_ = c.Close()
	if err := <-ended; err == nil {
		t.Error("the connection ended without an error")
	}
}

func TestBodiesRefusesLargeBody(t *testing.T) {
	server := httptest.NewServer(Bodies(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		}
	})))
	defer server.Close()
	r, err := http.Post(server.URL, "text/plain", bufio.NewReader(io.LimitReader(endless{}, Body+1)))
	if err != nil {
		if !strings.Contains(err.Error(), "reset") && !strings.Contains(err.Error(), "broken pipe") {
			t.Fatal(err)
		}
		return
	}
	_ = r.Body.Close()
	if r.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("%s", r.Status)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
