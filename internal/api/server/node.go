package server

import (
	"fmt"
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/topology"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/record/timeline"
)

func (s nodeRoutes) healthz(w http.ResponseWriter, r *http.Request) error {
	if err := s.Node.Healthy(r.Context()); err != nil {
		return answer.Next(apierrors.NewServiceUnavailable(err.Error()), `see "berth get problems" and the agent's log`)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err := io.WriteString(w, "ok\n")
	return err
}

func (s nodeRoutes) metrics(w http.ResponseWriter, r *http.Request) error {
	promhttp.HandlerFor(s.Metrics, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}

func (s nodeRoutes) status(w http.ResponseWriter, r *http.Request) error {
	st := s.Node.Status(r.Context())
	st.TypeMeta = api.Type("Status")
	answer.WriteJSON(w, http.StatusOK, st)
	return nil
}

func (s nodeRoutes) podTimeline(w http.ResponseWriter, r *http.Request) error {
	line, ok := s.Timelines.Find(r.PathValue("namespace"), r.PathValue("name"))
	if !ok {
		return answer.Next(answer.Failure(http.StatusNotFound, metav1.StatusReasonNotFound,
			fmt.Sprintf("no start of pod %s is recorded", key(r))),
			`the last starts are kept: "berth trace" lists them, "berth get pods -A" the pods`)
	}
	answer.WriteJSON(w, http.StatusOK, line)
	return nil
}

func (s nodeRoutes) listTimelines(w http.ResponseWriter, _ *http.Request) error {
	answer.WriteJSON(w, http.StatusOK,
		api.TimelineList{TypeMeta: api.Type("TimelineList"),
			Items: append([]timeline.Timeline{}, s.Timelines.List()...)})
	return nil
}

// Resources reads the resources of the node and the ones that pods hold.
type Resources interface {
	Node() resource.Node
	All() resource.Held
}

func (s nodeRoutes) topology(w http.ResponseWriter, _ *http.Request) error {
	names := map[types.UID]types.NamespacedName{}
	for key, p := range s.Pods.Snapshot().All() {
		names[p.UID] = key
	}
	t := topology.Of(s.Resources.Node(), s.Resources.All(), names)
	t.TypeMeta = api.Type("Topology")
	answer.WriteJSON(w, http.StatusOK, t)
	return nil
}
