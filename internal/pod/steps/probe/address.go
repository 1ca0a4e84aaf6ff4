package probe

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// dialer returns a dialer whose connections close within a second, instead of leaving each one in TIME-WAIT for a
// minute.
func dialer() *net.Dialer {
	return &net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			// A failure is harmless: only the port stays in use for longer.
			_ = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 1})
		})
	}}
}

func address(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// portOf resolves a probe's port: a number, or the name of a port of the container.
func portOf(port intstr.IntOrString, ports []corev1.ContainerPort) (int, error) {
	n := port.IntValue() // of text: its number, or 0
	if port.Type == intstr.String {
		named := false
		for _, p := range ports {
			if p.Name == port.StrVal {
				n, named = int(p.ContainerPort), true
				break
			}
		}
		if _, err := strconv.Atoi(port.StrVal); err != nil && !named {
			return 0, fmt.Errorf("port %q is neither a number nor the name of a port of the container", port.StrVal)
		}
	}
	if n < 1 || n > 65535 {
		return 0, fmt.Errorf("invalid port number: %d", n)
	}
	return n, nil
}

// newRequest returns the request of an httpGet probe.
func newRequest(ctx context.Context, get *corev1.HTTPGetAction, ports []corev1.ContainerPort,
	podIP string) (*http.Request, error) {
	port, err := portOf(get.Port, ports)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(get.Path)
	if err != nil {
		u = &url.URL{Path: get.Path} // sent unchanged: the server may understand it
	}
	u.Scheme = strings.ToLower(string(get.Scheme))
	if u.Scheme == "" {
		u.Scheme = "http"
	}
	host := get.Host
	if host == "" {
		host = podIP
	}
	u.Host = address(host, port)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	for _, h := range get.HTTPHeaders {
		req.Header.Add(h.Name, h.Value)
	}
	if _, present := req.Header["User-Agent"]; !present {
		req.Header.Set("User-Agent", userAgent)
	}
	if _, present := req.Header["Accept"]; !present {
		req.Header.Set("Accept", "*/*")
	} else if req.Header.Get("Accept") == "" {
		req.Header.Del("Accept") // an empty value means that none is sent
	}
	req.Host = req.Header.Get("Host")
	return req, nil
}
