package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/base/unixsocket"
)

// Client speaks to one agent. It is safe for concurrent use.
type Client struct {
	socket string
	http   *http.Client
	limit  time.Duration // see Within
}

// Offline serves the local API in this process, for a root directory without an agent.
type Offline interface {
	Dial(ctx context.Context) (net.Conn, error)
}

// New returns a client of the agent that listens on socket. It connects on first use.
func New(socket string) *Client { return NewOffline(socket, nil) }

// NewOffline is New for a client that connects to offline when no agent listens on socket.
func NewOffline(socket string, offline Offline) *Client {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := unixsocket.Dial(ctx, socket)
			if offline != nil && nobodyListens(err) {
				return offline.Dial(ctx)
			}
			return conn, err
		},
		DisableCompression: true,
		// A new connection to a unix socket is cheap, but an idle one would delay the agent's shutdown.
		DisableKeepAlives: true,
	}
	return &Client{socket: socket, http: &http.Client{Transport: transport}}
}

// Socket returns the path of the agent's socket.
func (c *Client) Socket() string { return c.socket }

// StartAgent is the next step of a user without an agent.
const StartAgent = `start one with "berth agent", or run the pods in the foreground with "berth run"`

// ErrNoAgent means that no process listens on the socket.
var ErrNoAgent = errors.New("no agent runs on this root")

func (c *Client) connectError(err error) error { return Explain(c.socket, err) }

// Explain turns a failed or broken connection to the agent at socket into an error with a next step.
func Explain(socket string, err error) error {
	prefix := "connect to the agent at " + socket
	switch {
	case nobodyListens(err):
		return Next(fmt.Errorf("%s: %w", prefix, ErrNoAgent), StartAgent)
	case errors.Is(err, fs.ErrPermission):
		return Next(fmt.Errorf("%s: %w", prefix, fs.ErrPermission), "run this command as root")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE):
		return Next(fmt.Errorf("%s: connection closed: %w", prefix, err), "see the agent's log for why it ended")
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err // without the address, which the prefix has
	}
	return Next(fmt.Errorf("%s: %w", prefix, err), "give the --socket of an agent, or the --root-dir that it runs on")
}

// nobodyListens reports whether a connection failed because no process listens on the socket.
func nobodyListens(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// NextError is an error with the next step for the user.
type NextError struct {
	Err  error
	Next string
}

func (e *NextError) Error() string { return e.Err.Error() }

func (e *NextError) Unwrap() error { return e.Err }

// Next adds a next step to an error.
func Next(err error, next string) error { return &NextError{Err: err, Next: next} }

// NextStep returns the user's next step after an error, or "" if that is unknown.
func NextStep(err error) string {
	if e, ok := errors.AsType[*NextError](err); ok {
		return e.Next
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		if d := status.Status().Details; d != nil {
			for _, cause := range d.Causes {
				if cause.Type == api.CauseNextStep {
					return cause.Message
				}
			}
		}
	}
	return ""
}

// Open begins to read an answer of the agent that may last, such as a watch. The caller closes its body, and looks for
// api.TrailerError at its end.
func (c *Client) Open(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	return c.send(ctx, http.MethodGet, path, query)
}

// send makes a request without a body and returns the response of a success. The caller closes its body. Any other
// response becomes an error.
func (c *Client) send(ctx context.Context, method, path string, query url.Values) (*http.Response, error) {
	resp, e, err := ask(ctx, c, method, path, query, nil)
	e.answered()
	return resp, err
}

// ask is send for an answer that the caller reads at once. The limit of Within also holds until the caller calls
// answered of the exchange.
func ask(ctx context.Context, c *Client, method, path string, query url.Values, body io.Reader) (*http.Response,
	exchange, error) {
	e := begin(ctx, c)
	u := url.URL{Scheme: "http", Host: "berth", Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(e.ctx, method, u.String(), body)
	if err != nil {
		return nil, e, err
	}
	req.Header.Set("User-Agent", "berth")
	resp, err := try(ctx, c, e, req)
	if err != nil {
		e.end()
		return nil, e, err
	}
	resp.Body = answerBody{resp.Body, e.end}
	return resp, e, nil
}

// try sends a request. ctx is the caller's context, without the limit.
func try(ctx context.Context, c *Client, e exchange, req *http.Request) (*http.Response, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err := silent(c, e); err != nil {
			return nil, err
		}
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		return nil, c.connectError(err)
	}
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		return nil, responseError(resp)
	}
	return resp, nil
}

// maxErrorBody limits how much of an error response is read, in bytes.
const maxErrorBody = 1 << 20

func responseError(resp *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil {
		return fmt.Errorf("agent answered %s: %w", resp.Status, err)
	}
	var st metav1.Status
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "application/json" &&
		json.Unmarshal(data, &st) == nil && st.Message != "" {
		return &apierrors.StatusError{ErrStatus: st}
	}
	return fmt.Errorf("agent answered %s: %s", resp.Status, strings.TrimSpace(string(data)))
}

// call makes a request and decodes the response into out, unless out is nil.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, body io.Reader, out any) error {
	resp, e, err := ask(ctx, c, method, path, query, body)
	defer e.answered()
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return cmp.Or(silent(c, e), fmt.Errorf("read the agent's answer to %s %s: %w", method, path, err))
	}
	return nil
}

func jsonBody(v any) (io.Reader, error) {
	data, err := json.Marshal(v)
	return bytes.NewReader(data), err
}

// Healthy returns nil if the agent runs and reports itself healthy.
func (c *Client) Healthy(ctx context.Context) error {
	return c.call(ctx, http.MethodGet, "/healthz", nil, nil, nil)
}

// Status returns the agent's own state.
func (c *Client) Status(ctx context.Context) (*api.Status, error) {
	st := &api.Status{}
	return st, c.call(ctx, http.MethodGet, "/berth/v1/status", nil, nil, st)
}
