package server

import (
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/topology"
	"github.com/berth-run/berth/internal/node/resource"
)

// Node reads the agent's own state.
type Node interface {
	Status(ctx context.Context) api.Status
	// Healthy returns the reason why the agent cannot work, or nil.
	Healthy(ctx context.Context) error
	// Hanging describes each pod whose worker hangs. Other pods are not affected, so the agent is healthy.
	Hanging() []string
}

// Resources reads the resources of the node and the ones that pods hold.
type Resources interface {
	Node() resource.Node
	All() resource.Held
}

// nodeRoutes shows the agent's own state and the machine.
type nodeRoutes struct {
	node      Node
	resources Resources
	pods      *Pods
	gatherer  prometheus.Gatherer
}

func (s nodeRoutes) healthz(w http.ResponseWriter, r *http.Request) error {
	if err := s.node.Healthy(r.Context()); err != nil {
		return answer.Next(apierrors.NewServiceUnavailable(err.Error()), `see "berth get problems" and the agent's log`)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err := io.WriteString(w, strings.Join(append([]string{"ok"}, s.node.Hanging()...), "\n")+"\n")
	return err
}

func (s nodeRoutes) metrics(w http.ResponseWriter, r *http.Request) error {
	promhttp.HandlerFor(s.gatherer, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}

func (s nodeRoutes) status(w http.ResponseWriter, r *http.Request) error {
	st := s.node.Status(r.Context())
	st.TypeMeta = api.Type("Status")
	answer.WriteJSON(w, http.StatusOK, st)
	return nil
}

func (s nodeRoutes) topology(w http.ResponseWriter, _ *http.Request) error {
	names := map[types.UID]types.NamespacedName{}
	for key, p := range s.pods.Snapshot().All() {
		names[p.UID] = key
	}
	t := topology.Of(s.resources.Node(), s.resources.All(), names)
	t.TypeMeta = api.Type("Topology")
	answer.WriteJSON(w, http.StatusOK, t)
	return nil
}
