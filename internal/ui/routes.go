package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/yaml"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/base/unixsocket"
	"github.com/berth-run/berth/internal/model/pod"
)

// podPath is the path of a pod in the Kubernetes API. ownPath is the path of its parts in the agent's own API.
const (
	podPath = "/api/v1/namespaces/{namespace}/pods/{name}"
	ownPath = "/berth/v1/pods/{namespace}/{name}"
)

// usagePath is the path of what pods use.
const usagePath = "/berth/v1/usage"

// requests are the routes of the agent that the page may use below /api. None reads Secrets.
var requests = []string{
	"GET " + podPath,
	"DELETE " + podPath,
	"GET " + podPath + "/log",
	"GET " + ownPath + "/timeline",
	"GET " + ownPath + "/lifeline",
	"GET /berth/v1/status",
	"GET /berth/v1/topology",
	"GET /berth/v1/images",
	"GET /berth/v1/images/usage",
}

// streams are the routes of the agent that the page may use below /live, as WebSockets.
var streams = []string{"/api/v1/pods", "/api/v1/events", "/api/v1/namespaces/{namespace}/events", podPath + "/log",
	"/berth/v1/history", "/berth/v1/changes", usagePath}

func (s *Server) routes(mux *http.ServeMux) {
	agent := httputil.ReverseProxy{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return unixsocket.Dial(ctx, s.agent.Socket())
			},
			DisableCompression: true,
			DisableKeepAlives:  true, // an idle connection would delay the agent's end
		},
		Rewrite:       func(r *httputil.ProxyRequest) { rewrite(r.Out) },
		FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error {
			// The agent answers data. A browser must never read it as a page.
			kind := r.Header.Get("Content-Type")
			r.Header = http.Header{"Content-Type": {kind}}
			if !strings.HasPrefix(kind, "application/json") {
				r.Header.Set("Content-Type", "text/plain; charset=utf-8")
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil {
				answer.WriteError(w, unreachable(s.agent, err))
			}
		},
	}
	for _, route := range requests {
		method, pattern, _ := strings.Cut(route, " ")
		mux.Handle(method+" /api"+pattern, http.StripPrefix("/api", &agent))
	}
	for _, pattern := range streams {
		mux.Handle("GET /live"+pattern, http.StripPrefix("/live", http.HandlerFunc(s.stream)))
	}
	mux.HandleFunc("GET /live/shell/{namespace}/{name}", s.shell)
	mux.HandleFunc("GET /starts", s.showStarts)
	mux.HandleFunc("GET /yaml/{namespace}/{name}", s.yaml)
	mux.HandleFunc("POST /restart/{namespace}/{name}", s.restartPod)
	mux.HandleFunc("POST /stop/{namespace}/{name}", s.stopPod)
	mux.HandleFunc("POST /explain/{namespace}/{name}", s.explain)
}

// rewrite turns a request of the page into a request to the agent. It passes on none of the browser's headers but the
// content type.
func rewrite(out *http.Request) {
	out.URL.Scheme, out.URL.Host, out.Host = "http", "berth", "berth"
	out.Header = http.Header{"User-Agent": {"berth"}, "Content-Type": out.Header.Values("Content-Type")}
}

func unreachable(agent *client.Client, err error) error {
	err = client.Explain(agent.Socket(), err)
	return answer.Next(answer.Failure(http.StatusBadGateway, metav1.StatusReasonServiceUnavailable, err.Error()),
		client.NextStep(err))
}

// closing is how long a browser may take to read the reason for the end of a stream.
const closing = time.Second

// ended is the code of a WebSocket's end after an error. A message with the error precedes it.
const ended = 4000

// stream copies a lasting answer of the agent into a WebSocket. A regular end has the code 1000. Any other end has the
// code 4000, after a message with the cause.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	conn, ctx, err := upgrade(w, r, ignore)
	if err != nil {
		return // upgrade has answered
	}
	defer func() { _ = conn.Close() }() // the browser may be gone already
	finish(conn, s.copy(ctx, r.URL, conn))
}

func (s *Server) copy(ctx context.Context, from *url.URL, conn *websocket.Conn) error {
	resp, err := s.agent.Open(ctx, from.Path, from.Query())
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buffer)
		if n > 0 {
			if err := conn.WriteMessage(websocket.BinaryMessage, buffer[:n]); err != nil {
				return nil // the browser is gone
			}
		}
		switch cause := resp.Trailer.Get(api.TrailerError); {
		case err == io.EOF && cause != "":
			return fmt.Errorf("%s", cause)
		case err == io.EOF:
			return nil
		case err != nil:
			return client.Explain(s.agent.Socket(), err)
		}
	}
}

// receiver reads one message of the browser. Its error ends the WebSocket.
type receiver func(kind int, message io.Reader) error

// ignore is the receiver of a stream that needs no messages.
func ignore(int, io.Reader) error { return nil }

// upgrade makes a WebSocket of a request. The context ends with the request's and when the browser closes the socket.
func upgrade(w http.ResponseWriter, r *http.Request, receive receiver) (*websocket.Conn, context.Context, error) {
	// The guard has checked the origin.
	upgrader := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return nil, nil, err
	}
	conn.SetReadLimit(1 << 20)
	ctx, cancel := context.WithCancel(r.Context())
	context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) }) // ends NextReader below
	go func() {
		defer cancel()
		for {
			kind, message, err := conn.NextReader()
			if err != nil || receive(kind, message) != nil {
				return
			}
		}
	}()
	return conn, ctx, nil
}

// finish ends a stream and sends the reason. WebSockets limit a reason to 123 bytes, so finish sends the whole text as
// a message before.
func finish(conn *websocket.Conn, err error) {
	message := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	if err != nil {
		_ = conn.SetWriteDeadline(time.Now().Add(closing))
		_ = conn.WriteMessage(websocket.TextMessage, []byte(err.Error()))
		message = websocket.FormatCloseMessage(ended, "")
	}
	_ = conn.WriteControl(websocket.CloseMessage, message, time.Now().Add(closing))
}

func key(r *http.Request) types.NamespacedName {
	return types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
}

// yaml answers with a pod as YAML.
func (s *Server) yaml(w http.ResponseWriter, r *http.Request) {
	p, err := s.agent.Pod(key(r)).Get(r.Context())
	if err != nil {
		answer.WriteError(w, err)
		return
	}
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	text, err := yaml.Marshal(p)
	if err != nil {
		answer.WriteError(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write(text) // it fails only if the browser is gone
}

// Annotations of pods that a user has restarted or stopped.
const (
	annotationRestarted = "berth.run/restarted-at" // the time of the last restart
	annotationStopped   = "berth.run/stopped"      // the deadline that the pod had before, or ""
)

// manifest returns a manifest like an existing pod, with its owners. A stopped pod gets its own deadline back.
func manifest(p *corev1.Pod) *corev1.Pod {
	m := pod.Manifest(p)
	m.OwnerReferences = slices.Clone(p.OwnerReferences)
	if deadline, stopped := m.Annotations[annotationStopped]; stopped {
		delete(m.Annotations, annotationStopped)
		m.Spec.ActiveDeadlineSeconds = nil
		if seconds, err := strconv.ParseInt(deadline, 10, 64); err == nil {
			m.Spec.ActiveDeadlineSeconds = &seconds
		}
	}
	return m
}

// restartPod replaces a pod by a new one with the same manifest. The agent stores the new pod before it ends the old
// one.
func (s *Server) restartPod(w http.ResponseWriter, r *http.Request) {
	s.replace(w, r, func(m *corev1.Pod) {
		m.UID = uuid.NewUUID() // another UID than the existing pod's makes the agent replace that pod
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, annotationRestarted, time.Now().UTC().Format(time.RFC3339Nano))
	})
}

// stopPod ends a pod and keeps it: a deadline that has passed ends the containers within their grace period, and they
// stay ended when the agent restarts. A deadline is one of the fields that change without a new pod.
func (s *Server) stopPod(w http.ResponseWriter, r *http.Request) {
	s.replace(w, r, func(m *corev1.Pod) {
		before := ""
		if d := m.Spec.ActiveDeadlineSeconds; d != nil {
			before = strconv.FormatInt(*d, 10)
		}
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, annotationStopped, before)
		m.Spec.ActiveDeadlineSeconds = new(int64(1))
	})
}

// replace applies the changed manifest of the pod with the UID that a request names.
func (s *Server) replace(w http.ResponseWriter, r *http.Request, change func(*corev1.Pod)) {
	p, err := s.agent.Pod(key(r)).Get(r.Context())
	if err == nil && string(p.UID) != r.URL.Query().Get("uid") {
		err = answer.Next(answer.Failure(http.StatusConflict, metav1.StatusReasonConflict,
			"the pod was replaced meanwhile"), "look at the new pod, and try again")
	}
	if err != nil {
		answer.WriteError(w, err)
		return
	}
	m := manifest(p)
	change(m)
	data, err := json.Marshal(m)
	if err == nil {
		_, err = s.agent.Apply(r.Context(), data, client.Apply{Origin: "berth ui"})
	}
	if err != nil {
		answer.WriteError(w, err)
		return
	}
	answer.WriteJSON(w, http.StatusOK, metav1.Status{Status: metav1.StatusSuccess})
}

// explain answers with the result that admission would have for a pod now.
func (s *Server) explain(w http.ResponseWriter, r *http.Request) {
	p, err := s.agent.Pod(key(r)).Get(r.Context())
	var data []byte
	if err == nil {
		data, err = json.Marshal(manifest(p))
	}
	var all []api.Explanation
	if err == nil {
		all, err = client.Explanations(r.Context(), s.agent, data, client.Apply{Origin: "berth ui"})
	}
	if err != nil {
		answer.WriteError(w, err)
		return
	}
	answer.WriteJSON(w, http.StatusOK, api.ExplanationList{TypeMeta: api.Type("ExplanationList"), Items: all})
}
