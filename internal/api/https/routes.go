package https

import (
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/logs"
	"github.com/berth-run/berth/internal/api/settle"
)

// handler answers one request. If it returns an error, the error becomes the answer.
type handler func(http.ResponseWriter, *http.Request) error

// set chooses the ports that serve a route, and the configuration that enables it.
type set int

const (
	open  set = iota // on both ports, always
	debug            // on the HTTPS port, with enableDebuggingHandlers
)

type route struct {
	// methods lists the HTTP methods of the route, or is "" for all.
	methods, path string
	// rights lists subresources of the node. A right on any one of them is enough (KEP-2862).
	rights string
	// verb is the verb that the client needs permission for. "" is the verb of the HTTP method.
	verb   string
	in     set
	handle handler
}

// routes returns the whole API. A route that runs code in a container needs the verb "create" for every
// HTTP method. With the kubelet, whoever may "get" nodes/proxy can run code too, by a WebSocket.
func (s *Server) routes() []route {
	const (
		pod       = "/{namespace}/{pod}"
		container = pod + "/{container}"
		ofUID     = pod + "/{uid}/{container}"
		create    = "create"
	)
	table := podTable{s.Pods}
	pods := podRoutes{table, logs.Logs{Pods: s.Pods, Dir: s.Dirs.PodLogs, Log: s.Log}, s.Runtime, s.Dirs.Checkpoints,
		s.Enabled.LogStreams}
	streams := streamRoutes{table, s.Streams, s.StreamIdle, s.requests.sockets, s.Enabled.WebSockets}
	system := systemLogRoutes{s.Dirs.SystemLogs, s.Enabled.SystemLogQuery}
	about, stats := aboutRoutes{s.About}, statsRoutes{s.Stats}
	return []route{
		{"GET", "/healthz", "healthz proxy", "", open, s.health.serveAll},
		{"GET", "/healthz/{check}", "healthz proxy", "", open, s.health.serveOne},
		{"GET", "/pods", "pods proxy", "", open, s.settled(pods.list)},
		{"GET", "/pods/{$}", "pods proxy", "", open, s.settled(pods.list)},
		{"GET POST", "/stats/summary", "stats", "", open, stats.summary},
		{"GET", "/metrics", "metrics", "", open, scraped(s.Metrics.Agent)},
		{"GET", "/metrics/cadvisor", "metrics", "", open, scraped(s.Metrics.CAdvisor)},
		{"GET", "/metrics/resource", "metrics", "", open, scraped(s.Metrics.Resource)},
		{"GET", "/metrics/probes", "metrics", "", open, scraped(s.Metrics.Probes)},
		{"GET", "/metrics/slis", "metrics", "", open, scraped(s.health.metrics())},

		{"POST", "/run" + container, "proxy", create, debug, s.settled(pods.run)},
		{"POST", "/run" + ofUID, "proxy", create, debug, s.settled(pods.run)},
		{"GET POST", "/exec" + container, "proxy", create, debug, s.settled(streams.exec)},
		{"GET POST", "/exec" + ofUID, "proxy", create, debug, s.settled(streams.exec)},
		{"GET POST", "/attach" + container, "proxy", create, debug, s.settled(streams.attach)},
		{"GET POST", "/attach" + ofUID, "proxy", create, debug, s.settled(streams.attach)},
		{"GET POST", "/portForward" + pod, "proxy", create, debug, s.settled(streams.portForward)},
		{"GET POST", "/portForward" + pod + "/{uid}", "proxy", create, debug, s.settled(streams.portForward)},
		{"GET", "/containerLogs" + container, "proxy", "", debug, s.settled(pods.containerLogs)},
		{"GET", "/runningpods", "pods proxy", "", debug, s.settled(pods.listRunning)},
		{"GET", "/runningpods/{$}", "pods proxy", "", debug, s.settled(pods.listRunning)},
		{"POST", "/checkpoint" + container, "checkpoint", "", debug, s.settled(pods.checkpoint)},
		{"GET", "/logs/{path...}", "log", "", debug, system.serve},
		{"GET", "/configz", "configz proxy", "", debug, about.configz},
		{"GET", "/statusz", "statusz", "", debug, s.statusz},
		{"GET", "/flagz", "configz", "", debug, about.flagz},
		{"GET POST", "/debug/pprof/{profile...}", "proxy", "", debug, profile},
		{"PUT", "/debug/flags/v", "proxy", "", debug, about.setVerbosity},
	}
}

// disabled returns routes that answer for the handlers that the configuration turns off.
func disabled(on Enabled) []route {
	if !on.DebuggingHandlers {
		off := refuse("Debug endpoints are disabled.")
		return []route{
			{"", "/run/", "proxy", "", debug, off},
			{"", "/exec/", "proxy", "", debug, off},
			{"", "/attach/", "proxy", "", debug, off},
			{"", "/portForward/", "proxy", "", debug, off},
			{"", "/containerLogs/", "proxy", "", debug, off},
			{"", "/runningpods/", "pods proxy", "", debug, off},
			{"", "/debug/pprof/", "proxy", "", debug, off},
			{"", "/logs/", "log", "", debug, off},
		}
	}
	var off []route
	if !on.SystemLogHandler {
		off = append(off, route{"", "/logs/", "log", "", debug, refuse("logs endpoint is disabled.")})
	}
	if !on.ProfilingHandler {
		off = append(off, route{"", "/debug/pprof/", "proxy", "", debug, refuse("profiling endpoint is disabled.")})
	}
	if !on.DebugFlagHandler {
		off = append(off, route{"", "/debug/flags/v", "proxy", "", debug, refuse("flags endpoint is disabled.")})
	}
	return off
}

// served returns the routes of a port with these switches.
func (s *Server) served(on Enabled) []route {
	off := disabled(on)
	all := off
	for _, rt := range s.routes() {
		if !on.Checkpoint && strings.HasPrefix(rt.path, "/checkpoint/") {
			continue // as in a kubelet, there is no such path
		}
		if rt.in == open || on.DebuggingHandlers && !covered(rt.path, off) {
			all = append(all, rt)
		}
	}
	return all
}

// covered reports whether path belongs to one of the disabled routes.
func covered(path string, off []route) bool {
	for _, o := range off {
		if path == o.path || strings.HasSuffix(o.path, "/") && strings.HasPrefix(path, o.path) {
			return true
		}
	}
	return false
}

// refuse answers with the kubelet's text for a disabled handler.
func refuse(text string) handler {
	return func(w http.ResponseWriter, _ *http.Request) error {
		http.Error(w, text, http.StatusMethodNotAllowed)
		return nil
	}
}

func scraped(h http.Handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if h == nil {
			http.NotFound(w, r)
			return nil
		}
		h.ServeHTTP(w, r)
		return nil
	}
}

// settled delays a request about pods until the agent has found all pods of the node, for at most settle.Time.
func (s *Server) settled(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := settle.Wait(r.Context(), s.Settled, settle.Time); err != nil {
			return err
		}
		return h(w, r)
	}
}

// Handler serves the HTTPS port, without a listener.
func (s *Server) Handler() http.Handler {
	return s.handler("readwrite", s.served(s.Enabled), s.Access.Check)
}

// readOnly serves the read-only port, without authentication.
func (s *Server) readOnly() http.Handler {
	return s.handler("readonly", s.served(Enabled{}), func(*http.Request, string, []string) error { return nil })
}

// handler serves routes: it counts each request, checks its rights with check, and calls its handler.
func (s *Server) handler(kind string, routes []route, check func(*http.Request, string, []string) error) http.Handler {
	mux := http.NewServeMux()
	byPattern := map[string]route{}
	for _, rt := range routes {
		for _, m := range methods(rt) {
			pattern := strings.TrimSpace(m + " " + rt.path)
			byPattern[pattern] = rt
			mux.Handle(pattern, adapt(rt.handle))
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.active.Enter() {
			http.Error(w, errStopping.Error(), http.StatusServiceUnavailable)
			return
		}
		defer s.active.Leave()
		// Look up the route by the pattern that mux will use, so that the checked route is the one that
		// answers.
		_, pattern := mux.Handler(r)
		rt, found := byPattern[pattern]
		if !found {
			rt = route{path: "/other", rights: "proxy"}
		}
		defer s.requests.begin(kind, r.Method, rt.path)()
		if err := check(r, verbFor(rt, r.Method), strings.Fields(rt.rights)); err != nil {
			writeError(w, err)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func adapt(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil && r.Context().Err() == nil {
			writeError(w, err)
		}
	})
}

func notAcceptable(message string) error {
	return answer.Failure(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, message)
}

// writeError answers an error in plain text, as the kubelet does.
func writeError(w http.ResponseWriter, err error) {
	st := answer.StatusOf(err)
	http.Error(w, st.Message, int(st.Code))
}
