package https

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/base/limit"
)

// shutdownGrace is how long running requests may take to finish when the agent ends. Streams and followed
// logs end at once.
const shutdownGrace = 2 * time.Second

// errStopping is the cancellation cause of requests when the agent ends.
var errStopping = errors.New("the agent is stopping")

// Run listens and serves until ctx ends. It returns an error if it cannot listen on an address or if a
// listener fails. After ctx has ended it waits for the running requests and returns nil.
func (s *Server) Run(ctx context.Context) error {
	if s.Enabled.DebuggingHandlers && s.Enabled.ProfilingHandler && s.Enabled.ContentionProfiling {
		runtime.SetBlockProfileRate(1)
		defer runtime.SetBlockProfileRate(0)
	}
	ports, err := s.listen(ctx)
	if err != nil {
		return err
	}
	close(s.ready)
	base, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(errStopping)
	group, serving := errgroup.WithContext(ctx)
	for _, p := range ports {
		p.server.BaseContext = func(net.Listener) context.Context { return base }
		s.Log.Info("node API is ready", "port", p.what, "address", p.listener.Addr())
		group.Go(func() error { return p.serve() })
	}
	<-serving.Done()
	stop(errStopping)
	var closing sync.WaitGroup
	for _, p := range ports {
		closing.Go(func() { p.end(context.WithoutCancel(ctx)) })
	}
	closing.Wait()
	<-s.active.Close()
	return group.Wait()
}

// Bounds of the ports. The API server is one client, through which all users reach the node. Nobody is authenticated on
// the open ports.
var (
	secureBounds = limit.Bounds{Connections: 1000, Requests: 1000, AllConnections: 4000}
	openBounds   = limit.Bounds{Connections: 100, Requests: 100, AllConnections: 1000}
)

// streamsPerConnection is how many requests one HTTP/2 connection may have under way.
const streamsPerConnection = 100

// port is one listener with its HTTP server.
type port struct {
	what     string
	listener *listener
	server   *http.Server
}

// listen opens all configured addresses. If one fails, it closes the others.
func (s *Server) listen(ctx context.Context) (ports []*port, err error) {
	defer func() {
		if err != nil {
			for _, p := range ports {
				_ = p.listener.Close()
			}
		}
	}()
	for _, want := range []struct {
		what, address string
		secure        bool
		handler       func() http.Handler
	}{
		{"HTTPS", s.Addresses.HTTPS, true, s.Handler},
		{"read-only HTTP", s.Addresses.ReadOnly, false, s.readOnly},
		{"health", s.Addresses.Healthz, false, healthPort},
	} {
		if want.address == "" {
			continue
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", want.address)
		if err != nil {
			return ports,
				fmt.Errorf(
					"listen for %s on %s: %w; next: stop the other kubelet or agent that may use it, or configure "+
						"another port",
					want.what, want.address, err)
		}
		bounds := openBounds
		if want.secure {
			bounds = secureBounds
		}
		p := &port{what: want.what, listener: newListener(limit.Listener(l, bounds)),
			server: s.bounded(want.handler(), bounds)}
		if want.secure {
			p.server.TLSConfig = s.tlsConfig()
		}
		s.bound[want.address] = l.Addr()
		ports = append(ports, p)
	}
	return ports, nil
}

// bounded returns the HTTP server of a port, with the bounds and the times that every port has.
func (s *Server) bounded(handler http.Handler, bounds limit.Bounds) *http.Server {
	return &http.Server{
		Handler:           limit.Requests(limit.Bodies(handler), bounds, answer.RefuseTooMany),
		ReadHeaderTimeout: limit.Header,
		IdleTimeout:       limit.Idle,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: streamsPerConnection},
		ErrorLog:          slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
	}
}

// tlsConfig returns the TLS configuration of the options, extended to request client certificates. They are
// verified with each request, not in the handshake, because the authorities can change while a connection
// is open.
func (s *Server) tlsConfig() *tls.Config {
	protocols := []string{"h2", "http/1.1"}
	base := s.TLS.Clone()
	base.NextProtos = protocols
	configured := base.GetConfigForClient
	base.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		c := base
		if configured != nil {
			chosen, err := configured(hello)
			if err != nil {
				return nil, err
			}
			if chosen != nil {
				c = chosen
			}
		}
		c = c.Clone()
		c.GetConfigForClient = nil
		c.NextProtos = protocols
		c.ClientAuth, c.ClientCAs = tls.RequestClientCert, s.Access.ClientCAs()
		return c, nil
	}
	return base
}

func (p *port) serve() error {
	var err error
	if p.server.TLSConfig != nil {
		err = p.server.ServeTLS(p.listener, "", "")
	} else {
		err = p.server.Serve(p.listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve %s on %s: %w", p.what, p.listener.Addr(), err)
}

// end waits up to shutdownGrace for requests to finish and closes all connections. The listener closes
// those that became streams, because an http.Server does not track them.
func (p *port) end(ctx context.Context) {
	last, cancel := context.WithTimeout(ctx, shutdownGrace)
	defer cancel()
	if err := p.server.Shutdown(last); err != nil {
		_ = p.server.Close()
	}
	p.listener.closeAll()
}

// listener tracks its open connections.
type listener struct {
	net.Listener
	mu    sync.Mutex
	conns map[*conn]struct{}
}

func newListener(l net.Listener) *listener {
	return &listener{Listener: l, conns: map[*conn]struct{}{}}
}

type conn struct {
	net.Conn
	of *listener
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	tracked := &conn{c, l}
	l.conns[tracked] = struct{}{}
	return tracked, nil
}

func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

func (l *listener) closeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Conn.Close()
	}
	clear(l.conns)
}
