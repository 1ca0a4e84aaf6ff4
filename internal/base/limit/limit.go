package limit

import (
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Bounds are the bounds of one server.
type Bounds struct {
	// Connections and Requests of one client at the same time. A stream, such as exec or a followed log, is a request.
	Connections, Requests int
	// AllConnections is the bound of all clients together.
	AllConnections int
}

// Times of an HTTP server.
const (
	// Header is how long a client may take to send the header of a request.
	Header = 10 * time.Second
	// Idle is how long a connection without a request stays open, as in http.DefaultTransport.
	Idle = 90 * time.Second
	// BodyTime is how long a client may take to send the body of a request.
	BodyTime = 30 * time.Second
)

// Body is how large the body of a request may be, unless its route reads uploads.
const Body = 16 << 20

// count counts the uses of clients.
type count struct {
	mu       sync.Mutex
	byClient map[string]int
	all      int
}

// enter counts one more use of a client, or returns false if that would be more than most, or all uses more than
// mostAll. 0 means no bound.
func (c *count) enter(client string, most, mostAll int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if most > 0 && c.byClient[client] >= most || mostAll > 0 && c.all >= mostAll {
		return false
	}
	if c.byClient == nil {
		c.byClient = map[string]int{}
	}
	c.byClient[client]++
	c.all++
	return true
}

func (c *count) leave(client string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.byClient[client]--; c.byClient[client] == 0 {
		delete(c.byClient, client)
	}
}

// client returns the client of a remote address: its IP address, or the same text for all clients of a unix socket.
func client(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return "local"
	}
	return host
}

// Listener closes new connections beyond the bounds.
func Listener(l net.Listener, b Bounds) net.Listener { return &listener{Listener: l, bounds: b} }

type listener struct {
	net.Listener
	bounds Bounds
	conns  count
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := client(c.RemoteAddr().String())
		if l.conns.enter(from, l.bounds.Connections, l.bounds.AllConnections) {
			return &conn{Conn: c, left: sync.OnceFunc(func() { l.conns.leave(from) })}, nil
		}
		_ = c.Close() // the client sees a closed connection and tries again
	}
}

type conn struct {
	net.Conn
	left func()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.left()
	return c.Conn.Close()
}

// Requests refuses requests beyond the bounds. It makes query parameters the only parameters of a request: a handler or
// a library that asks for form values never reads the body, whose parts net/http would otherwise store in files.
//
// refuse answers a request beyond the bounds with status 429, in the format of the server. The message names the client
// and the bound.
func Requests(next http.Handler, b Bounds, refuse func(w http.ResponseWriter, message string)) http.Handler {
	var requests count
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from := client(r.RemoteAddr)
		if !requests.enter(from, b.Requests, 0) {
			w.Header().Set("Retry-After", "1")
			refuse(w, fmt.Sprintf("more than %d requests of %s are under way", b.Requests, from))
			return
		}
		defer requests.leave(from)
		r = r.WithContext(r.Context())
		r.Form, r.PostForm, r.MultipartForm = r.URL.Query(), url.Values{}, &multipart.Form{}
		next.ServeHTTP(w, r)
	})
}

// RefuseText refuses a request with status 429 and the message as plain text.
func RefuseText(w http.ResponseWriter, message string) {
	http.Error(w, message, http.StatusTooManyRequests)
}

// Bodies bounds the size of request bodies, and the time that clients may take to send them.
func Bodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			c := http.NewResponseController(w)
			// A connection without deadlines is one of a test.
			_ = c.SetReadDeadline(time.Now().Add(BodyTime))
			r = r.WithContext(r.Context())
			r.Body = &bounded{ReadCloser: http.MaxBytesReader(w, r.Body, Body), conn: c}
		}
		next.ServeHTTP(w, r)
	})
}

// bounded is the body of a request. Its end lifts the deadline, which would otherwise end a long answer: the server
// reads from the connection meanwhile, to notice that the client is gone. An error keeps the deadline, because the
// server then reads the rest of the body before it answers, and would wait without end.
type bounded struct {
	io.ReadCloser
	conn *http.ResponseController
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.conn.SetReadDeadline(time.Time{})
	}
	return n, err
}
