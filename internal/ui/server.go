package ui

import (
	"compress/gzip"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/base/limit"
)

// assets holds the files of the page as NAME.gz. hack/webui.sh builds them.
//
//go:embed assets
var assets embed.FS

// ErrNoPage means that the binary was built without the page.
var ErrNoPage = errors.New("this program was built without the web page")

// Server serves the page. Create it with Listen.
type Server struct {
	guard *guard
	agent *client.Client
	files map[string][]byte
	at    net.Listener
	base  context.Context // ends every request
	stop  context.CancelFunc
}

// Listen listens on a port of the loopback address 127.0.0.1. Port 0 chooses a free one. The server works once Run
// runs.
func Listen(ctx context.Context, port uint16, agent *client.Client) (*Server, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return nil, client.Next(fmt.Errorf("listen for browsers: %w", err),
			"choose another --port, or leave it out for a free one")
	}
	files, err := pageFiles()
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	chosen := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	base, stop := context.WithCancel(ctx)
	return &Server{
		guard: &guard{hosts: []string{"127.0.0.1:" + chosen, "localhost:" + chosen}, cookie: "berth-ui-" + chosen},
		agent: agent, files: files, at: l, base: base, stop: stop,
	}, nil
}

// pageFiles returns the compressed files of the page by name.
func pageFiles() (map[string][]byte, error) {
	entries, err := fs.ReadDir(assets, "assets")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, e := range entries {
		if name, packed := strings.CutSuffix(e.Name(), ".gz"); packed {
			if files[name], err = assets.ReadFile("assets/" + e.Name()); err != nil {
				return nil, err
			}
		}
	}
	if files["index.html"] == nil {
		return nil, client.Next(ErrNoPage, `build it with "make build"`)
	}
	return files, nil
}

// Link returns a link that opens the page once.
func (s *Server) Link() string {
	u := url.URL{Scheme: "http", Host: s.at.Addr().String(), Path: "/",
		RawQuery: url.Values{"token": {s.guard.link()}}.Encode()}
	return u.String()
}

// bounds of a browser: a WebSocket for each stream of each tab, and short requests.
var bounds = limit.Bounds{Connections: 256, Requests: 256, AllConnections: 256}

// Run serves until the context of Listen ends. All streams have ended when it returns.
func (s *Server) Run() error {
	srv := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: limit.Header,
		IdleTimeout:       limit.Idle,
		BaseContext:       func(net.Listener) context.Context { return s.base },
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(limit.Listener(s.at, bounds)) }()
	defer s.stop()
	select {
	case err := <-failed:
		return client.Next(fmt.Errorf("serve the web page: %w", err), `start "berth ui" again`)
	case <-s.base.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(s.base), time.Second)
	defer cancel()
	if err := srv.Shutdown(last); err != nil {
		_ = srv.Close() // the browser is slow; nothing is lost
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return client.Next(fmt.Errorf("serve the web page: %w", err), `start "berth ui" again`)
	}
	return nil
}

// Handler returns the handler of all requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", s.file)
	s.routes(mux)
	return limit.Requests(s.guard.wrap(limit.Bodies(mux)), bounds, answer.RefuseTooMany)
}

// contentTypes are the content types of the page's files.
var contentTypes = map[string]string{".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8", ".txt": "text/plain; charset=utf-8", ".svg": "image/svg+xml"}

func (s *Server) file(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	if name == "" {
		name = "index.html"
	}
	content := s.files[name]
	if content == nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", contentTypes[path.Ext(name)])
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		_, _ = w.Write(content) // it fails only if the browser is gone
		return
	}
	plain, err := gzip.NewReader(strings.NewReader(string(content)))
	if err == nil {
		_, err = io.Copy(w, plain)
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}
