package handler

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/event"
	"github.com/berth-run/berth/internal/record/timeline"
)

const (
	maxBody      = 10 << 10 // bytes read of an HTTP response
	maxRead      = 64 << 10 // bytes read of a command's output
	maxOutput    = 1 << 10  // bytes shown from the end of a command's output
	maxRedirects = 10

	// userAgent is the kubelet's user agent, because servers recognise its requests by it.
	userAgent = "kube-lifecycle/1.36"

	lifecycleHTTPFallback = "LifecycleHTTPFallback" // event reason
)

// execer runs a command in a container.
type execer interface {
	ExecSync(context.Context, *runtimeapi.ExecSyncRequest, ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error)
}

// Runner runs handlers. Its methods may be called from any goroutine.
type Runner struct {
	runtime execer
	events  event.Sink
	http    *http.Client

	fallbacks, interrupted prometheus.Counter
}

// New returns a Runner.
func New(runtime execer, events event.Sink) *Runner {
	return &Runner{
		runtime: runtime, events: events, http: newClient(),
		fallbacks: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_lifecycle_handler_http_fallbacks_total",
			Help: "Number of lifecycle handlers that succeeded with HTTP after HTTPS met a server without TLS.",
		}),
		interrupted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_sleep_action_terminated_early_total",
			Help: "Number of sleep handlers that ended before their time, because the grace period was over.",
		}),
	}
}

// Metrics returns the metrics of the handlers, under the kubelet's names.
func (r *Runner) Metrics() []prometheus.Collector {
	return []prometheus.Collector{r.fallbacks, r.interrupted}
}

// Target is the container that a handler belongs to.
type Target struct {
	Pod       *corev1.Pod
	Container pod.Container
	ID        string
	IPs       []string // of the pod
	// Timeout is when the runtime kills the command of an exec handler. The other kinds end with the context.
	Timeout time.Duration
}

// call is one run of a handler.
type call struct {
	*Runner
	Target
}

// Run runs a handler of a container. name names it in the timeline. Run returns nil if the handler succeeded.
func (r *Runner) Run(ctx context.Context, t Target, name string, l *corev1.LifecycleHandler) error {
	return call{r, t}.run(ctx, name, l)
}

func (h call) run(ctx context.Context, name string, l *corev1.LifecycleHandler) (err error) {
	ctx, span := timeline.Start(ctx, name, timeline.KindHook.Attr())
	defer func() { timeline.End(span, err) }()
	var kind string
	switch {
	case l.Exec != nil:
		kind, err = fmt.Sprintf("Exec lifecycle hook (%v)", l.Exec.Command), h.exec(ctx, l.Exec.Command)
	case l.HTTPGet != nil:
		kind, err = fmt.Sprintf("HTTP lifecycle hook (%s)", l.HTTPGet.Path), h.httpGet(ctx, l.HTTPGet)
	case l.Sleep != nil:
		kind, err = fmt.Sprintf("Sleep lifecycle hook (%d)", l.Sleep.Seconds),
			h.sleep(ctx, time.Duration(l.Sleep.Seconds)*time.Second)
	case l.TCPSocket != nil:
		kind, err = "TCP lifecycle hook", h.tcpSocket(ctx, l.TCPSocket)
	default:
		kind, err = "Lifecycle hook", errors.New("it has no handler; next: set exec, httpGet, sleep or tcpSocket")
	}
	if err != nil {
		return fmt.Errorf("%s for Container %q in Pod %q failed - error: %w", kind, h.Container.Name,
			pod.FullName(h.Pod), err)
	}
	return nil
}

func (h call) exec(ctx context.Context, command []string) error {
	seconds := int64((h.Timeout + time.Second - 1) / time.Second)
	resp, err := h.runtime.ExecSync(cri.LimitOutput(ctx, maxRead),
		&runtimeapi.ExecSyncRequest{ContainerId: h.ID, Cmd: command, Timeout: seconds})
	if err != nil {
		return err
	}
	if resp.ExitCode != 0 {
		output := bytes.TrimSpace(append(resp.Stdout, resp.Stderr...))
		return fmt.Errorf("command exited with %d, message: %q", resp.ExitCode, output[max(0, len(output)-maxOutput):])
	}
	return nil
}

func (h call) sleep(ctx context.Context, d time.Duration) error {
	if retry.Sleep(ctx, d) != nil {
		h.interrupted.Inc()
		return errors.New("container terminated before sleep hook finished")
	}
	return nil
}

func (h call) tcpSocket(ctx context.Context, a *corev1.TCPSocketAction) error {
	address, err := h.address(a.Host, a.Port)
	if err != nil {
		return err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// httpGet succeeds with any response. If an HTTPS request meets a plain HTTP server, it is sent again without TLS.
// Kubernetes does so for manifests that were written when the scheme was ignored.
func (h call) httpGet(ctx context.Context, a *corev1.HTTPGetAction) error {
	req, err := h.request(ctx, a)
	if err != nil {
		return err
	}
	err = h.do(req)
	if !errors.Is(err, http.ErrSchemeMismatch) {
		return err
	}
	plain := req.Clone(ctx)
	plain.URL.Scheme = "http"
	plain.Header.Del("Authorization")
	if again := h.do(plain); again != nil {
		return err
	}
	h.fallbacks.Inc()
	h.events.Event(event.PodRef(h.Pod), corev1.EventTypeWarning, lifecycleHTTPFallback,
		"request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded", req.URL.Host)
	return nil
}

func (h call) request(ctx context.Context, a *corev1.HTTPGetAction) (*http.Request, error) {
	address, err := h.address(a.Host, a.Port)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(a.Path)
	if err != nil {
		u = &url.URL{Path: a.Path}
	}
	u.Scheme, u.Host = strings.ToLower(string(a.Scheme)), address
	if u.Scheme == "" {
		u.Scheme = "http"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	for _, header := range a.HTTPHeaders {
		req.Header.Add(header.Name, header.Value)
	}
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header.Set("User-Agent", userAgent)
	}
	switch values, ok := req.Header["Accept"]; {
	case !ok:
		req.Header.Set("Accept", "*/*")
	case values[0] == "":
		req.Header.Del("Accept")
	}
	req.Host = req.Header.Get("Host")
	return req, nil
}

func (h call) do(req *http.Request) error {
	resp, err := h.http.Do(req)
	if err != nil {
		return err
	}
	// An unread rest closes the connection, which is not used again anyway.
	_, _ = io.CopyN(io.Discard, resp.Body, maxBody)
	return resp.Body.Close()
}

// address returns where a handler connects to: the pod, unless the handler names a host.
func (h call) address(host string, port intstr.IntOrString) (string, error) {
	if host == "" {
		if len(h.IPs) == 0 {
			return "", errors.New("the pod has no address")
		}
		host = h.IPs[0]
	}
	n := port.IntValue()
	for _, p := range h.Container.Ports {
		if port.Type == intstr.String && p.Name == port.StrVal {
			n = int(p.ContainerPort)
		}
	}
	if n < 1 || n > 65535 {
		return "", fmt.Errorf("port %q is neither a number nor the name of a port of the container", port.String())
	}
	return net.JoinHostPort(host, strconv.Itoa(n)), nil
}

// newClient returns a client that accepts any certificate, because the address already identifies the container. It
// follows redirects on the same host only.
func newClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
			DisableKeepAlives: true,
		},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			switch {
			case req.URL.Hostname() != via[0].URL.Hostname():
				return http.ErrUseLastResponse
			case len(via) >= maxRedirects:
				return fmt.Errorf("stopped after %d redirects", maxRedirects)
			}
			return nil
		},
	}
}
