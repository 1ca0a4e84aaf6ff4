package https

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berth-run/berth/internal/base/limit"
	"github.com/berth-run/berth/internal/base/limit/limittest"
)

// spool lists the directory for temporary files during each request.
type spool struct {
	runtimeParts
	dir   string
	mu    sync.Mutex
	seen  []string
	calls int
}

func (s *spool) look() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	entries, err := os.ReadDir(s.dir)
	for _, e := range entries {
		s.seen = append(s.seen, e.Name())
	}
	return err
}

func (s *spool) Summary(ctx context.Context, only bool) (*statsv1alpha1.Summary, error) {
	if err := s.look(); err != nil {
		return nil, err
	}
	return s.runtimeParts.Summary(ctx, only)
}

func (s *spool) Run(ctx context.Context, p *corev1.Pod, container string, command []string) ([]byte, error) {
	if err := s.look(); err != nil {
		return nil, err
	}
	return s.runtimeParts.Run(ctx, p, container, command)
}

// upload sends a multipart form of 64 MiB over a connection of its own, and returns the first line of the answer.
func upload(t *testing.T, c net.Conn, path string) string {
	t.Helper()
	defer c.Close()
	const size = 64 << 20
	const tail = "\r\n--x--\r\n"
	head := "--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n"
	_, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer admin\r\n"+
		"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: %d\r\n\r\n%s", path,
		len(head)+size+len(tail), head)
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan struct{})
	go func() { // the server may close the connection before it has read all of it
		defer close(sent)
		_, _ = io.Copy(c, io.MultiReader(io.LimitReader(zeros{}, size), strings.NewReader(tail)))
	}()
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil && !errors.Is(err, net.ErrClosed) {
		t.Logf("POST %s: %v", path, err)
	}
	_ = c.Close()
	<-sent
	return strings.TrimSpace(line)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestUploadsAreNotStored(t *testing.T) {
	dir := t.TempDir()
	s := &spool{dir: dir}
	const readOnly = "127.0.0.1:00"
	n := start(t, func(o *Options) {
		o.Addresses.ReadOnly, o.Stats, o.Runtime = readOnly, s, s
	})
	n.running("web", "app")
	t.Setenv("TMPDIR", dir)
	secure := func() net.Conn {
		c, err := tls.Dial("tcp", n.Addr(anyPort).String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	plain := func() net.Conn {
		c, err := net.Dial("tcp", n.Addr(readOnly).String())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for what, got := range map[string]string{
		"read-only port": upload(t, plain(), "/stats/summary?only_cpu_and_memory=true"),
		"HTTPS port":     upload(t, secure(), "/stats/summary"),
		"run":            upload(t, secure(), "/run/default/web/app?cmd=true"),
		"exec":           upload(t, secure(), "/exec/default/web/app?command=true"),
		"pprof":          upload(t, secure(), "/debug/pprof/symbol"),
	} {
		if got == "" {
			t.Logf("%s: no answer", what)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) > 0 {
			t.Errorf("%s: files are left: %v, %v", what, entries, err)
		}
	}
	if len(s.seen) > 0 || s.calls < 3 {
		t.Errorf("%d requests were served; files of uploads meanwhile: %v", s.calls, s.seen)
	}
}

func TestSlowHeadersAndBodiesAndIdleConnectionsEnd(t *testing.T) {
	n := start(t, nil)
	for name, c := range map[string]struct {
		handler http.Handler
		bounds  limit.Bounds
		path    string
	}{
		"HTTPS":          {n.Handler(), secureBounds, "/stats/summary"},
		"read-only HTTP": {n.readOnly(), openBounds, "/stats/summary"},
		"health":         {healthPort(), openBounds, "/healthz"},
	} {
		t.Run(name, func(t *testing.T) {
			limittest.SlowClientsEnd(t, n.bounded(c.handler, c.bounds), c.path)
		})
	}
}

func TestConnectionsOfOneClientAreBounded(t *testing.T) {
	n := start(t, func(o *Options) { o.Addresses.ReadOnly = "127.0.0.1:00" })
	address := n.Addr("127.0.0.1:00").String()
	end, err := limittest.Fill(t.Context(), address, openBounds.Connections)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	r, err := limittest.Another().Get("http://" + address + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
}
