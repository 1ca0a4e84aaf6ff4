package https

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/proxy"
	translator "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/server"
	"github.com/berth-run/berth/internal/model/pod"
)

// streamRoutes relays connections into pods.
type streamRoutes struct {
	podTable
	streams server.Streams
	idle    time.Duration          // Options.StreamIdle
	sockets *prometheus.CounterVec // counts the streams that came as WebSockets
	// translates means that the server translates the WebSocket protocols that runtimes do not know. Otherwise the
	// runtime refuses them, and clients fall back to SPDY.
	translates bool
}

// exec prepares a command at the runtime and relays its streams.
func (s streamRoutes) exec(w http.ResponseWriter, r *http.Request) error {
	o, err := remotecommand.NewOptions(r)
	if err != nil {
		return answer.BadRequest(err.Error(), "")
	}
	command := r.URL.Query()[corev1.ExecCommandParam]
	if len(command) == 0 {
		return answer.BadRequest("no command to run", "give one or more command parameters")
	}
	p, name, err := s.running(r)
	if err != nil {
		return err
	}
	at, err := s.streams.ExecURL(r.Context(), p, &corev1.PodExecOptions{
		Container: name, Command: command, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY})
	if err != nil {
		return fmt.Errorf("prepare command in container %q of pod %s: %w", name, pod.FullName(p), err)
	}
	return s.terminal(w, r, at, o)
}

// attach connects to a container's main process.
func (s streamRoutes) attach(w http.ResponseWriter, r *http.Request) error {
	o, err := remotecommand.NewOptions(r)
	if err != nil {
		return answer.BadRequest(err.Error(), "")
	}
	p, name, err := s.running(r)
	if err != nil {
		return err
	}
	at, err := s.streams.AttachURL(r.Context(), p, &corev1.PodAttachOptions{
		Container: name, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY})
	if err != nil {
		return fmt.Errorf("attach to container %q of pod %s: %w", name, pod.FullName(p), err)
	}
	return s.terminal(w, r, at, o)
}

// terminal relays the streams of a command. The WebSocket protocol that can close a stream (v5) is unknown
// to runtimes, so it is translated to SPDY.
func (s streamRoutes) terminal(w http.ResponseWriter, r *http.Request, at string, o *remotecommand.Options) error {
	return s.stream(w, r, at, func(to *url.URL, relay http.Handler) http.Handler {
		if !s.translates || !wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
			return relay
		}
		return translator.NewStreamTranslatorHandler(to, nil, 0,
			translator.Options{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY})
	})
}

func (s streamRoutes) portForward(w http.ResponseWriter, r *http.Request) error {
	tunnel := s.translates && wsstream.IsWebSocketRequestWithTunnelingProtocol(r)
	if !tunnel { // the older WebSocket protocol puts the ports into the URL
		if _, err := portforward.NewV4Options(r); err != nil {
			return answer.BadRequest(err.Error(), "")
		}
	}
	p, err := s.pod(r)
	if err != nil {
		return err
	}
	at, err := s.streams.PortForwardURL(r.Context(), p)
	if err != nil {
		return fmt.Errorf("forward ports of pod %s: %w", pod.FullName(p), err)
	}
	return s.stream(w, r, at, func(_ *url.URL, relay http.Handler) http.Handler {
		if tunnel {
			return translator.NewTunnelingHandler(relay)
		}
		return relay
	})
}

// stream connects the client to the runtime's streaming server at a URL until one of them ends. choose
// picks the handler: the plain relay, or one that wraps it.
func (s streamRoutes) stream(w http.ResponseWriter, r *http.Request, at string,
	choose func(*url.URL, http.Handler) http.Handler) error {
	to, err := url.Parse(at)
	if err != nil {
		return fmt.Errorf("parse the runtime's streaming URL: %w", err)
	}
	if wsstream.IsWebSocketRequest(r) {
		s.sockets.WithLabelValues(subresource(r.URL.Path)).Inc()
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	r = r.Clone(ctx)
	r.Header.Del("Authorization") // the runtime needs no credentials of the cluster
	relay := proxy.NewUpgradeAwareHandler(to, nil, false, true, errorResponder{})
	choose(to, relay).ServeHTTP(&streamWriter{ResponseWriter: w, idle: s.idle, end: cancel}, r)
	return nil
}

// subresource returns the API's name for a stream's path, used as a metric label.
func subresource(path string) string {
	if b := bucket(path); b != "portForward" {
		return b
	}
	return "portforward"
}

// errorResponder answers the client when the relay fails.
type errorResponder struct{}

func (errorResponder) Error(w http.ResponseWriter, _ *http.Request, err error) {
	var withStatus apierrors.APIStatus
	if !errors.As(err, &withStatus) {
		err = fmt.Errorf("connect to the runtime's streaming server: %w", err)
	}
	writeError(w, err)
}

// streamWriter hands out a hijacked connection that closes when it is idle, and that ends the request when
// it closes.
type streamWriter struct {
	http.ResponseWriter
	idle time.Duration
	end  context.CancelFunc
}

// Hijack implements http.Hijacker.
func (w *streamWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	// Bytes that the server has already buffered come first, then the connection.
	early, err := rw.Reader.Peek(rw.Reader.Buffered())
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	s := &streamConn{Conn: c, from: io.MultiReader(bytes.NewReader(bytes.Clone(early)), c), idle: w.idle, end: w.end}
	if s.idle > 0 {
		s.timer = time.AfterFunc(s.idle, func() { _ = s.Close() })
	}
	return s, bufio.NewReadWriter(bufio.NewReader(s), bufio.NewWriter(s)), nil
}

type streamConn struct {
	net.Conn
	from  io.Reader
	idle  time.Duration
	timer *time.Timer // nil means no idle limit
	end   context.CancelFunc
}

// record restarts the idle timer after traffic, and ends the request after an error.
func (c *streamConn) record(n int, err error) {
	switch {
	case err != nil:
		c.end()
	case n > 0 && c.timer != nil:
		c.timer.Reset(c.idle)
	}
}

func (c *streamConn) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.record(n, err)
	return n, err
}

func (c *streamConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.record(n, err)
	return n, err
}

func (c *streamConn) Close() error {
	if c.timer != nil {
		c.timer.Stop()
	}
	c.end()
	return c.Conn.Close()
}
