package offline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"

	"google.golang.org/grpc/test/bufconn"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/agent/engine/kind"
	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/base/limit"
	"github.com/berth-run/berth/internal/base/lock"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/process"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/config/recall"
)

// Root is the root directory that the flags of a command choose. It implements client.Offline.
type Root struct {
	app    *command.App
	stderr io.Writer

	mu       sync.Mutex
	listener *bufconn.Listener // nil until the first Dial
	server   *http.Server
	served   chan error
	unlock   func() error // nil: the lock is not held
	// nodes hold an answering agent, by whether it has a container runtime.
	nodes map[bool]node
}

// node is an agent that runs no pods.
type node struct {
	handler http.Handler
	stop    func() error
}

// New returns the root directory of app's flags, which may be parsed later. Its first Dial prints to stderr that no
// agent runs.
func New(app *command.App, stderr io.Writer) *Root {
	return &Root{app: app, stderr: stderr, nodes: map[bool]node{}}
}

// buffer is the size of the buffer of a connection, in bytes.
const buffer = 256 << 10

// Dial implements client.Offline.
func (r *Root) Dial(ctx context.Context) (net.Conn, error) {
	r.mu.Lock()
	if r.listener == nil {
		r.listener = bufconn.Listen(buffer)
		r.served = make(chan error, 1)
		base := context.WithoutCancel(ctx)
		r.server = &http.Server{Handler: r.handler(), ReadHeaderTimeout: limit.Header,
			BaseContext: func(net.Listener) context.Context { return base }}
		go func(s *http.Server, l net.Listener) { r.served <- s.Serve(l) }(r.server, r.listener)
		fmt.Fprintf(r.stderr, "No agent runs on %s: the command uses its files directly\n", r.dir())
	}
	listener := r.listener
	r.mu.Unlock()
	return listener.DialContext(ctx)
}

// dir returns the root directory.
func (r *Root) dir() string { return cmp.Or(r.app.Root, config.DefaultRootDir) }

// Close ends what requests have started, and releases the lock.
func (r *Root) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener == nil {
		return nil
	}
	err := r.server.Close()
	if served := <-r.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	for _, n := range r.nodes {
		err = errors.Join(err, n.stop())
	}
	if r.unlock != nil {
		err = errors.Join(err, r.unlock())
	}
	return err
}

// open returns an agent that answers requests and runs no pods. Without a container runtime the root directory must
// exist, since a request for files has no other meaning.
func (r *Root) open(ctx context.Context, runtime bool) (http.Handler, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n, ok := r.nodes[runtime]; ok {
		return n.handler, nil
	}
	f, err := recall.Load(r.dir(), recall.SystemFile)
	if err != nil {
		return nil, client.Next(err, "correct or remove that file, or choose another --root-dir")
	}
	f.Apart, f.Embedded.CRIListen = true, ""
	c, _, err := config.Load(f)
	if err != nil {
		return nil, client.Next(err, `correct the configuration; "berth doctor --config FILE" checks it`)
	}
	c.Sources.StaticPodURL = "" // only what is on disk
	if r.unlock == nil {
		if runtime {
			err = os.MkdirAll(c.RootDir, 0o711) // as the agent makes it
		} else if _, err = os.Stat(c.RootDir); errors.Is(err, os.ErrNotExist) {
			return nil, noAgent(c.RootDir + " does not exist: ")
		}
		if err != nil {
			return nil, client.Next(fmt.Errorf("open root directory: %w", err), "choose another --root-dir")
		}
		if r.unlock, err = lock.Command(ctx, c.RootDir); err != nil {
			return nil, client.Next(err, lock.Advice)
		}
	}
	log, err := process.Logger(r.stderr, "text", slog.LevelError)
	if err != nil {
		return nil, err
	}
	// The parts outlive this request.
	h, stop, err := agent.Offline(context.WithoutCancel(ctx), agent.Options{Config: c, Flags: f, Runtimes: kind.All{},
		Version: api.BuildVersion().Version, Verbosity: process.Verbosity(log), Log: log}, runtime)
	if err != nil {
		return nil, err
	}
	r.nodes[runtime] = node{h, stop}
	return h, nil
}

// needs lists the requests that are answered without an agent, and whether they need the container runtime. A more
// specific pattern wins.
var needs = []struct {
	pattern string
	runtime bool
}{
	{"GET /api/v1/", false},
	{"GET /apis/", false},
	{"GET /berth/v1/pods/{namespace}/{name}/timeline", false},
	{"GET /berth/v1/timelines", false},
	{"GET /berth/v1/topology", false},
	{"POST /berth/v1/explain", true},
	{"/berth/v1/images", true},
	{"/berth/v1/images/", true},
}

// handler returns the handler of all requests.
func (r *Root) handler() http.Handler {
	mux := http.NewServeMux()
	for _, n := range needs {
		mux.HandleFunc(n.pattern, func(w http.ResponseWriter, req *http.Request) {
			if q := req.URL.Query(); q.Has("watch") || q.Has("follow") {
				answer.WriteError(w, noAgent(""))
				return
			}
			h, err := r.open(req.Context(), n.runtime)
			if err != nil {
				if next := client.NextStep(err); next != "" {
					err = answer.Next(err, next) // an answer has only errors of the API
				}
				answer.WriteError(w, err)
				return
			}
			h.ServeHTTP(w, req)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { answer.WriteError(w, noAgent("")) })
	return mux
}

// noAgent returns the error of a request that needs an agent.
func noAgent(why string) error {
	return answer.Next(apierrors.NewServiceUnavailable(why+client.ErrNoAgent.Error()), client.StartAgent)
}
