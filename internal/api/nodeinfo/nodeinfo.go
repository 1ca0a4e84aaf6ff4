package nodeinfo

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/query"
	"github.com/berth-run/berth/internal/api/topology"
	"github.com/berth-run/berth/internal/api/usage"
	"github.com/berth-run/berth/internal/node/resource"
)

// Node reads the agent's own state.
type Node interface {
	Status(ctx context.Context) api.Status
	// Healthy returns the reason why the agent cannot work, or nil.
	Healthy(ctx context.Context) error
	// Hanging describes each pod whose worker hangs. Other pods are not affected, so the agent is healthy.
	Hanging() []string
	// Pressure says how far the node is from evicting pods, and with orders, which pods would end first.
	Pressure(ctx context.Context, orders bool) api.Pressure
}

// Stats measures usage.
type Stats interface {
	Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error)
}

// Resources reads the resources of the node and the ones that pods hold.
type Resources interface {
	Node() resource.Node
	All() resource.Held
}

// Info answers requests about the agent's own state and the machine. All fields are required.
type Info struct {
	Node      Node
	Resources Resources
	Metrics   prometheus.Gatherer
	Stats     Stats
	// Feed sends what pods use to the clients that watch it.
	Feed *usage.Feed
}

// Pressure answers GET /berth/v1/pressure.
func (i Info) Pressure(w http.ResponseWriter, r *http.Request) error {
	q := query.Of(r)
	orders := q.Flag("orders", false)
	if q.Err != nil {
		return q.Err
	}
	answer.WriteJSON(w, http.StatusOK, i.Node.Pressure(r.Context(), orders))
	return nil
}

// Usage answers GET /berth/v1/stats in the format of a kubelet's /stats/summary.
func (i Info) Usage(w http.ResponseWriter, r *http.Request) error {
	q := query.Of(r)
	brief := q.Flag("only_cpu_and_memory", false)
	if q.Err != nil {
		return q.Err
	}
	summary, err := i.Stats.Summary(r.Context(), brief)
	if err != nil {
		return fmt.Errorf("measure the node: %w", err)
	}
	answer.WriteJSON(w, http.StatusOK, summary)
	return nil
}

// Healthz answers GET /healthz: 200 while the agent works, with a line for each pod whose worker hangs.
func (i Info) Healthz(w http.ResponseWriter, r *http.Request) error {
	if err := i.Node.Healthy(r.Context()); err != nil {
		return answer.Next(apierrors.NewServiceUnavailable(err.Error()), `see "berth get problems" and the agent's log`)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err := io.WriteString(w, strings.Join(append([]string{"ok"}, i.Node.Hanging()...), "\n")+"\n")
	return err
}

// Series answers GET /metrics.
func (i Info) Series(w http.ResponseWriter, r *http.Request) error {
	promhttp.HandlerFor(i.Metrics, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}

// Status answers GET /berth/v1/status.
func (i Info) Status(w http.ResponseWriter, r *http.Request) error {
	st := i.Node.Status(r.Context())
	st.TypeMeta = api.Type("Status")
	answer.WriteJSON(w, http.StatusOK, st)
	return nil
}

// Topology answers GET /berth/v1/topology. names has the names of the pods by UID.
func (i Info) Topology(w http.ResponseWriter, names map[types.UID]types.NamespacedName) error {
	t := topology.Of(i.Resources.Node(), i.Resources.All(), names)
	t.TypeMeta = api.Type("Topology")
	answer.WriteJSON(w, http.StatusOK, t)
	return nil
}
