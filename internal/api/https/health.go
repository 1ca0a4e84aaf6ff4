package https

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// check is one health check.
type check struct {
	name string
	run  func(context.Context) error
	// notes describes what is wrong although the check succeeds. It may be nil.
	notes func() []string
}

// checks returns the health checks of /healthz.
func checks(work Health) []check {
	fine := func(context.Context) error { return nil }
	// The log check always succeeds: the log handlers write without a buffer, so they cannot be stuck.
	return []check{{name: "ping", run: fine}, {name: "log", run: fine},
		{name: "syncloop", run: func(ctx context.Context) error { return work.Healthy(ctx) },
			notes: func() []string { return work.Hanging() }}}
}

// health runs checks on request and keeps the results for /metrics/slis.
type health struct {
	checks   []check
	registry *prometheus.Registry
	now      *prometheus.GaugeVec
	total    *prometheus.CounterVec
}

func newHealth(checks []check) *health {
	h := &health{
		checks: checks, registry: prometheus.NewRegistry(),
		now: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubernetes_healthcheck", Help: "Last result of a health check: 1 is healthy, 0 is not."},
			[]string{"name", "type"}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubernetes_healthchecks_total", Help: "Results of health checks."},
			[]string{"name", "status", "type"}),
	}
	h.registry.MustRegister(h.now, h.total) // a registry of its own
	return h
}

func (h *health) metrics() http.Handler {
	return promhttp.HandlerFor(h.registry, promhttp.HandlerOpts{})
}

func (h *health) run(ctx context.Context, c check) error {
	err := c.run(ctx)
	value, status := 1.0, "success"
	if err != nil {
		value, status = 0, "error"
	}
	h.now.WithLabelValues(c.name, "healthz").Set(value)
	h.total.WithLabelValues(c.name, status, "healthz").Inc()
	return err
}

// serveAll answers "ok", and a line for each pod whose worker hangs. If a check failed or the parameter verbose is set,
// it answers the list of checks instead. The parameter exclude leaves checks out.
func (h *health) serveAll(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	var report bytes.Buffer
	failed := false
	ok := []string{"ok"}
	for _, c := range h.checks {
		if c.notes != nil {
			ok = append(ok, c.notes()...)
		}
		switch {
		case slices.Contains(q["exclude"], c.name):
			fmt.Fprintf(&report, "[+]%s excluded: ok\n", c.name)
		case h.run(r.Context(), c) != nil:
			failed = true
			fmt.Fprintf(&report, "[-]%s failed: reason withheld\n", c.name)
		default:
			fmt.Fprintf(&report, "[+]%s ok\n", c.name)
		}
	}
	switch {
	case failed:
		http.Error(w, report.String()+"healthz check failed", http.StatusInternalServerError)
	case q.Has("verbose"):
		writeText(w, report.String()+strings.Join(append(ok[1:], "healthz check passed\n"), "\n"))
	default:
		writeText(w, strings.Join(ok, "\n"))
	}
	return nil
}

func (h *health) serveOne(w http.ResponseWriter, r *http.Request) error {
	for _, c := range h.checks {
		if c.name != r.PathValue("check") {
			continue
		}
		if err := h.run(r.Context(), c); err != nil {
			http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
			return nil
		}
		writeText(w, "ok")
		return nil
	}
	http.NotFound(w, r)
	return nil
}

// healthPort serves the liveness port. Supervisors restart an agent that does not answer there, so it does
// not check the runtime: a restart of the agent would not repair that.
func healthPort() http.Handler {
	alive := newHealth(checks(nil)[:1])
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", adapt(alive.serveAll))
	mux.Handle("GET /healthz/{check}", adapt(alive.serveOne))
	return mux
}

func writeText(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write([]byte(text)) // it fails only if the connection is broken, and then there is no reader
}
