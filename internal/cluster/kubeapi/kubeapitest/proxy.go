package kubeapitest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Fault is a response in place of the API server's.
type Fault struct {
	// Match selects requests. nil selects all. It is called from many goroutines. A function that always returns false
	// can record the requests.
	Match func(*http.Request) bool
	// Times is how many requests get the response. 0 means all until the next Inject.
	Times int
	// Code is the HTTP status. Reason is the reason of the metav1.Status in the body.
	Code   int
	Reason metav1.StatusReason
	// RetryAfter is in seconds; 0 sends no such header.
	RetryAfter int
}

// proxy stands between the nodes and kube-apiserver. Normally it copies bytes, so that TLS is between the two ends.
// While there are faults, it terminates TLS and acts as a front proxy, which tells the API server the name of each
// client.
type proxy struct {
	listener net.Listener
	target   string
	serving  tls.Certificate
	clients  *x509.CertPool // the authority of client certificates
	handed   handed
	http     *http.Server
	work     sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	faults []Fault
	cut    bool // close each accepted connection
}

// trust holds the keys of a proxy.
type trust struct {
	serving, front pair
	ca             []byte
}

func newProxy(target string, keys trust) (*proxy, error) {
	serving, err := tls.X509KeyPair(keys.serving.cert, keys.serving.key)
	if err != nil {
		return nil, err
	}
	front, err := tls.X509KeyPair(keys.front.cert, keys.front.key)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(keys.ca)
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for nodes: %w", err)
	}
	p := &proxy{
		listener: listener, target: target, serving: serving, clients: pool,
		handed: handed{conns: make(chan net.Conn), closed: make(chan struct{}), addr: listener.Addr()},
		conns:  map[net.Conn]struct{}{},
	}
	quiet := log.New(io.Discard, "", 0) // tests cut connections on purpose
	p.http = &http.Server{
		ErrorLog: quiet,
		Handler: &vouching{
			proxy: p,
			known: p.reverse(quiet, &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{front}}),
			other: p.reverse(quiet, &tls.Config{RootCAs: pool}),
		},
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{serving}, ClientAuth: tls.RequestClientCert,
			NextProtos: []string{"h2", "http/1.1"},
		},
	}
	return p, nil
}

func (p *proxy) start() {
	p.work.Go(func() { _ = p.http.ServeTLS(&p.handed, "", "") })
	p.work.Go(func() {
		for {
			conn, err := p.listener.Accept()
			if err != nil {
				return
			}
			p.work.Go(func() { p.serve(conn) })
		}
	})
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.drop()
	_ = p.http.Close()
	p.work.Wait()
}

// serve copies a connection to the API server, or passes it to the server for faults.
func (p *proxy) serve(conn net.Conn) {
	p.mu.Lock()
	cut, faulty := p.cut, len(p.faults) > 0
	if !cut {
		p.conns[conn] = struct{}{}
	}
	p.mu.Unlock()
	if cut {
		_ = conn.Close()
		return
	}
	if faulty {
		select {
		case p.handed.conns <- tracked{conn, p}:
		case <-p.handed.closed:
			p.forget(conn)
		}
		return
	}
	defer p.forget(conn)
	server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", p.target)
	if err != nil {
		return // the client's connection ends, as without a proxy
	}
	defer server.Close()
	p.work.Go(func() {
		_, _ = io.Copy(server, conn)
		_ = server.Close()
	})
	_, _ = io.Copy(conn, server)
}

func (p *proxy) forget(conn net.Conn) {
	_ = conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
}

// drop closes all connections.
func (p *proxy) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		_ = conn.Close()
	}
}

// set changes the handling of connections, and closes the existing ones.
func (p *proxy) set(change func()) {
	p.mu.Lock()
	change()
	p.mu.Unlock()
	p.drop()
}

// fault returns the response for a request, or nil to pass it on.
func (p *proxy) fault(r *http.Request) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.faults {
		f := &p.faults[i]
		if f.Times < 0 || f.Match != nil && !f.Match(r) {
			continue
		}
		switch f.Times {
		case 0:
		case 1:
			f.Times = -1 // spent
		default:
			f.Times--
		}
		answer := *f
		return &answer
	}
	return nil
}

// spent reports whether no fault with a number of times is left.
func (p *proxy) spent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !slices.ContainsFunc(p.faults, func(f Fault) bool { return f.Times > 0 })
}

// reverse returns the proxy handler to the API server.
func (p *proxy) reverse(quiet *log.Logger, config *tls.Config) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "https", Host: p.target})
		},
		Transport:     &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true},
		FlushInterval: -1, // watches
		ErrorLog:      quiet,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
}

// vouching responds with a fault, or sends the request to the API server in the client's name.
type vouching struct {
	proxy        *proxy
	known, other http.Handler // for clients with a certificate; for all others
}

func (f *vouching) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if fault := f.proxy.fault(r); fault != nil {
		answer(w, *fault)
		return
	}
	maps.DeleteFunc(r.Header, func(name string, _ []string) bool { return strings.HasPrefix(name, "X-Remote-") })
	if len(r.TLS.PeerCertificates) == 0 {
		f.other.ServeHTTP(w, r)
		return
	}
	client := r.TLS.PeerCertificates[0]
	_, err := client.Verify(x509.VerifyOptions{Roots: f.proxy.clients,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		answer(w, Fault{Code: http.StatusUnauthorized, Reason: metav1.StatusReasonUnauthorized})
		return
	}
	r.Header.Set("X-Remote-User", client.Subject.CommonName)
	for _, group := range client.Subject.Organization {
		r.Header.Add("X-Remote-Group", group)
	}
	f.known.ServeHTTP(w, r)
}

func answer(w http.ResponseWriter, f Fault) {
	w.Header().Set("Content-Type", "application/json")
	if f.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(f.RetryAfter))
	}
	w.WriteHeader(f.Code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Reason: f.Reason, Code: int32(f.Code), Message: http.StatusText(f.Code),
	})
}

// handed is a listener for connections that were accepted elsewhere.
type handed struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	addr   net.Addr
}

func (h *handed) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

func (h *handed) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

func (h *handed) Addr() net.Addr { return h.addr }

// tracked is a connection that the proxy drops from its list when it is closed.
type tracked struct {
	net.Conn
	proxy *proxy
}

func (t tracked) Close() error {
	t.proxy.forget(t.Conn)
	return nil
}
