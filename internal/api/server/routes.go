package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/logs"
	"github.com/berth-run/berth/internal/api/query"
	"github.com/berth-run/berth/internal/api/settle"
	"github.com/berth-run/berth/internal/base/limit"
)

// handler answers one request. If it returns an error before it has begun an answer, the error becomes the answer.
type handler func(http.ResponseWriter, *http.Request) error

type route struct {
	method, path string
	// query lists every parameter of the route. Any other parameter is an error.
	query  string
	doc    string
	handle handler
}

const (
	listQuery = "labelSelector fieldSelector resourceVersion resourceVersionMatch limit continue " +
		"watch allowWatchBookmarks sendInitialEvents timeoutSeconds timeout"
	applyQuery  = "namespace origin keep lease dryRun names"
	logQuery    = "container instance follow previous sinceSeconds sinceTime timestamps tailLines limitBytes stream"
	execQuery   = "container command stdin stdout stderr tty"
	attachQuery = "container stdin stdout stderr"
)

// routes returns the whole API.
func (s *Server) routes() []route {
	table := podTable{s.Pods, versions{s.Started}}
	pod := podRoutes{table, logs.Logs{Pods: s.Pods, Dir: s.LogDir, Log: s.Log}}
	change := changeRoutes{table, s.Applier, s.Explainer, s.leases}
	amend := amendRoutes{table, s.Amender}
	stream, file := streamRoutes{table, s.Streams}, fileRoutes{table, s.Files}
	checkpoint := checkpointRoutes{table, s.Checkpoints}
	event := eventRoutes{s.Events}
	image := imageRoutes{s.Images}
	object := objectRoutes{s.Objects, table.versions}
	const pods = "/api/v1/namespaces/{namespace}/pods"
	return slices.Concat([]route{
		{"GET", "/{$}", "", "list these routes", s.listRoutes},
		{"GET", "/healthz", "", "200 when the agent works; names pods whose worker hangs", s.Info.Healthz},
		{"GET", "/metrics", "", "metrics in the Prometheus text format", s.Info.Series},

		{"GET", "/api/v1/pods", listQuery, "list or watch the pods of all namespaces", s.settled(pod.list)},
		{"GET", pods, listQuery, "list or watch the pods of a namespace", s.settled(pod.list)},
		{"GET", pods + "/{name}", "resourceVersion", "get a pod", s.settled(pod.get)},
		{"DELETE", pods + "/{name}", "gracePeriodSeconds", "end a pod within its grace", s.settled(change.remove)},
		{"GET", pods + "/{name}/log", logQuery, "read or follow a container's log", s.settled(pod.log)},
		{"GET", pods + "/{name}/exec", execQuery, "prepare a command in a container: answers the URL of its streams",
			s.settled(stream.exec)},
		{"POST", pods + "/{name}/exec", execQuery, "as GET", s.settled(stream.exec)},
		{"POST", pods + "/{name}/attach", attachQuery,
			"connect to a container's own process: answers the URL of its streams", s.settled(stream.attach)},
		{"POST", pods + "/{name}/portforward", "", "reach ports of a pod: answers the URL of the streams",
			s.settled(stream.portForward)},
		{"GET", "/api/v1/events", listQuery, "list or watch the events of all namespaces", event.list},
		{"GET", "/api/v1/namespaces/{namespace}/events", listQuery, "list or watch the events of a namespace",
			event.list},

		{"POST", "/berth/v1/pods", applyQuery,
			"create or replace pods and the objects they name from manifests, JSON or YAML: all or none",
			s.settled(change.apply)},
		{"POST", "/berth/v1/explain", "namespace origin",
			"what admission would say about each pod of manifests now; nothing is changed", s.settled(change.explain)},
		{"POST", "/berth/v1/pods/{namespace}/{name}/resize", "", "ask for other CPU and memory of a container",
			s.settled(amend.resize)},
		{"POST", "/berth/v1/pods/{namespace}/{name}/ephemeralcontainers", "", "add an ephemeral container",
			s.settled(amend.addEphemeral)},
		{"POST", "/berth/v1/pods/{namespace}/{name}/conditions", "",
			"set a condition, such as one that a readiness gate names", s.settled(amend.setCondition)},
		{"POST", "/berth/v1/pods/{namespace}/{name}/checkpoint", "container",
			"write the state of a running container, which runs on, as an archive (tar)", s.settled(checkpoint.write)},
		{"GET", "/berth/v1/pods/{namespace}/{name}/files", "container path",
			"read a file or directory of a container, as a tar stream", s.settled(file.pack)},
		{"PUT", "/berth/v1/pods/{namespace}/{name}/files", "container path name", "write a tar stream into a container",
			s.settled(file.unpack)},
		{"GET", "/berth/v1/pods/{namespace}/{name}/timeline", "", "the recorded start of a pod", s.Past.Start},
		{"GET", "/berth/v1/timelines", "last", "starts of pods; last: only so many, with spans", s.Past.Starts},
		{"GET", "/berth/v1/pods/{namespace}/{name}/lifeline", "",
			"when the containers of a pod ran and what their probes found, since the agent's start",
			s.settled(s.Past.Pod)},
		{"GET", "/berth/v1/history", "sinceTime follow", "what the node used over the last day", s.Past.Node},
		{"GET", "/berth/v1/changes", "", "a line for each change of images, starts or topology", s.Changes.Stream},
		{"GET", "/berth/v1/usage", "", "a line with what pods use, and one every 5 s", s.settled(s.Info.Feed.Stream)},
		{"GET", "/berth/v1/status", "", "version, runtime, conditions and problems of the agent", s.Info.Status},
		{"GET", "/berth/v1/topology", "",
			"what the machine is built of, and which pods hold which CPUs, memory and devices",
			s.settled(s.topology)},
		{"GET", "/berth/v1/pressure", "orders",
			"how far the node is from evicting pods; orders: also which pods would end first",
			s.settled(s.Info.Pressure)},
		{"GET", "/berth/v1/stats", "only_cpu_and_memory",
			"usage of the node and its pods, as a kubelet's /stats/summary", s.settled(s.Info.Usage)},
		{"GET", "/berth/v1/images", "", "list the images of the runtime", image.list},
		{"POST", "/berth/v1/images", "", "load an image archive (tar)", image.load},
		{"DELETE", "/berth/v1/images", "name force", "remove the image of that name, with all its names", image.remove},
		{"POST", "/berth/v1/images/pull", "name",
			"pull an image with the node's credentials: answers lines of progress", image.pull},
		{"POST", "/berth/v1/images/prune", "all",
			"remove unused images; all: also images that were loaded from archives", image.prune},
		{"GET", "/berth/v1/images/archive", "name", "save images as an archive (tar)", image.save},
		{"GET", "/berth/v1/images/usage", "", "what images take of the disk", image.usage},
		{"GET", "/berth/v1/pulls", "", "list the image pulls under way", image.pulls},
		{"POST", "/berth/v1/leases", "", "hold a lease: pods applied with it are deleted when this connection closes",
			s.leases.hold},
	}, object.routes(s.settled))
}

// topology shows the machine, with the names of the pods that hold parts of it.
func (s *Server) topology(w http.ResponseWriter, _ *http.Request) error {
	names := map[types.UID]types.NamespacedName{}
	for key, p := range s.Pods.Snapshot().All() {
		names[p.UID] = key
	}
	return s.Info.Topology(w, names)
}

// uploads are the routes whose request bodies have no bound here: they are streamed to their place, which has its own.
var uploads = []string{"POST /berth/v1/images", "PUT /berth/v1/pods/{namespace}/{name}/files"}

// Handler returns the HTTP handler of the API. It works without a socket.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	var methods []string
	for _, rt := range s.routes() {
		h := serve(rt)
		if !slices.Contains(uploads, rt.method+" "+rt.path) {
			h = limit.Bodies(h)
		}
		mux.Handle(rt.method+" "+rt.path, h)
		if !slices.Contains(methods, rt.method) {
			methods = append(methods, rt.method)
		}
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { noRoute(mux, methods, w, r) })
	return mux
}

// settled delays a request about pods until the agent has found all pods of the node, but not longer than settle.Time
// after the agent's start.
func (s *Server) settled(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := settle.Wait(r.Context(), s.Settled, time.Until(s.Started.Add(settle.Time))); err != nil {
			return err
		}
		return h(w, r)
	}
}

func serve(rt route) http.Handler {
	known := strings.Fields(rt.query)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := checkQuery(r, known)
		if err == nil {
			err = rt.handle(w, r)
		}
		if err != nil && r.Context().Err() == nil {
			answer.WriteError(w, err)
		}
	})
}

func checkQuery(r *http.Request, known []string) error {
	if _, err := query.Parse(r); err != nil {
		return err
	}
	for name := range r.URL.Query() {
		if !slices.Contains(known, name) {
			return answer.BadRequest(fmt.Sprintf("unknown query parameter %q", name),
				"this route knows: "+strings.Join(known, ", "))
		}
	}
	return nil
}

// noRoute answers a request that matches no route: 405 if the path has routes for other methods, else 404.
func noRoute(mux *http.ServeMux, methods []string, w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, m := range methods {
		try := r.Clone(r.Context())
		try.Method = m
		if _, pattern := mux.Handler(try); pattern != "/" {
			allowed = append(allowed, m)
		}
	}
	if len(allowed) == 0 {
		answer.WriteError(w,
			answer.Next(answer.Failure(http.StatusNotFound, metav1.StatusReasonNotFound,
				"the agent has no route "+r.URL.Path),
				"GET / lists the routes"))
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	answer.WriteError(w, answer.Next(answer.Failure(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
		fmt.Sprintf("%s is not allowed on %s", r.Method, r.URL.Path)), "use "+strings.Join(allowed, " or ")))
}

func (s *Server) listRoutes(w http.ResponseWriter, _ *http.Request) error {
	list := api.RouteList{TypeMeta: api.Type("RouteList")}
	for _, rt := range s.routes() {
		path := strings.TrimSuffix(rt.path, "{$}")
		list.Items = append(list.Items,
			api.Route{Method: rt.method, Path: path, Query: strings.Fields(rt.query), Doc: rt.doc})
	}
	answer.WriteJSON(w, http.StatusOK, list)
	return nil
}
