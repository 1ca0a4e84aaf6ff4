// Package metricsserver serves the resource metrics API (metrics.k8s.io/v1beta1) of one node, like metrics-server. It
// scrapes /metrics/resource of the node's server as a service account. It computes CPU usage from the samples of two
// scrapes and their timestamps.
package metricsserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// Server is a metrics server for one node. Set its fields before Run.
type Server struct {
	// Node is the name of the node, URL the address of its server.
	Node, URL string
	// Client trusts the node's certificate, and authenticates.
	Client *http.Client
	// Every is the time between two scrapes.
	Every time.Duration

	mu        sync.Mutex
	last, now sampled
	err       error // of the newest scrape
}

// part identifies a container. The zero part is the node.
type part struct{ namespace, pod, container string }

// sample is the usage of a part at a time.
type sample struct {
	at     time.Time
	cpu    float64 // core seconds since the part started
	memory float64 // working set, bytes
}

type sampled map[part]sample

// Run scrapes until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	every := time.NewTicker(s.Every)
	defer every.Stop()
	for {
		samples, err := s.scrape(ctx)
		s.mu.Lock()
		if s.err = err; err == nil {
			s.last, s.now = s.now, samples
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-every.C:
		}
	}
}

func (s *Server) scrape(ctx context.Context) (sampled, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/metrics/resource", nil)
	if err != nil {
		return nil, err
	}
	answer, err := s.Client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, err := io.ReadAll(answer.Body)
		return nil, errors.Join(fmt.Errorf("scrape %s: %s: %s", s.Node, answer.Status, text), err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("scrape %s: %w", s.Node, err)
	}
	samples := sampled{}
	for _, what := range []string{"node", "container"} {
		samples.set(families[what+"_cpu_usage_seconds_total"], func(v *sample, m *dto.Metric) {
			v.cpu, v.at = m.GetCounter().GetValue(), time.UnixMilli(m.GetTimestampMs())
		})
		samples.set(families[what+"_memory_working_set_bytes"], func(v *sample, m *dto.Metric) {
			v.memory = m.GetGauge().GetValue()
		})
	}
	return samples, nil
}

// set applies change to the sample of each part in a metric family.
func (s sampled) set(f *dto.MetricFamily, change func(*sample, *dto.Metric)) {
	for _, m := range f.GetMetric() {
		labels := map[string]string{}
		for _, l := range m.Label {
			labels[l.GetName()] = l.GetValue()
		}
		id := part{labels["namespace"], labels["pod"], labels["container"]}
		v := s[id]
		change(&v, m)
		s[id] = v
	}
}

// usage is the usage of a part between two scrapes. ok is false if the part has only one sample.
func usage(before, after sample) (_ corev1.ResourceList, ok bool) {
	seconds := after.at.Sub(before.at).Seconds()
	if before.at.IsZero() || seconds <= 0 || after.cpu < before.cpu {
		return nil, false
	}
	return corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewMilliQuantity(int64(math.Round(1000*(after.cpu-before.cpu)/seconds)),
			resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(int64(after.memory), resource.BinarySI),
	}, true
}

func (s *Server) nodes() []metricsv1beta1.NodeMetrics {
	node := part{}
	u, ok := usage(s.last[node], s.now[node])
	if !ok {
		return nil
	}
	return []metricsv1beta1.NodeMetrics{{
		ObjectMeta: metav1.ObjectMeta{Name: s.Node}, Timestamp: metav1.NewTime(s.now[node].at), Window: s.window(node),
		Usage: u,
	}}
}

func (s *Server) window(of part) metav1.Duration {
	return metav1.Duration{Duration: s.now[of].at.Sub(s.last[of].at)}
}

// pods returns the metrics of pods. It leaves out a pod until each of its containers was scraped twice.
func (s *Server) pods() []metricsv1beta1.PodMetrics {
	pods := map[part]*metricsv1beta1.PodMetrics{}
	for of := range s.now {
		if of.container == "" {
			continue
		}
		id := part{namespace: of.namespace, pod: of.pod}
		p, known := pods[id]
		if !known {
			p = &metricsv1beta1.PodMetrics{
				ObjectMeta: metav1.ObjectMeta{Namespace: of.namespace, Name: of.pod},
				Timestamp:  metav1.NewTime(s.now[of].at), Window: s.window(of),
			}
			pods[id] = p
		}
		u, ok := usage(s.last[of], s.now[of])
		if p == nil || !ok {
			pods[id] = nil
			continue
		}
		p.Containers = append(p.Containers, metricsv1beta1.ContainerMetrics{Name: of.container, Usage: u})
	}
	var all []metricsv1beta1.PodMetrics
	for _, p := range pods {
		if p != nil {
			all = append(all, *p)
		}
	}
	slices.SortFunc(all, func(a, b metricsv1beta1.PodMetrics) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// Handler serves the API.
func (s *Server) Handler() http.Handler {
	const root = "/apis/metrics.k8s.io/v1beta1"
	read := metav1.Verbs{"get", "list"}
	mux := http.NewServeMux()
	handle := func(path string, lookup func(*http.Request) any) {
		mux.HandleFunc("GET "+root+path, func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			defer s.mu.Unlock()
			w.Header().Set("Content-Type", "application/json")
			answer := lookup(r)
			switch {
			case s.err != nil:
				answer = failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, s.err.Error())
			case answer == nil:
				answer = failure(http.StatusNotFound, metav1.StatusReasonNotFound, "no metrics of this object yet")
			}
			if f, ok := answer.(*metav1.Status); ok {
				w.WriteHeader(int(f.Code))
			}
			_ = json.NewEncoder(w).Encode(answer) // fails if the client has gone
		})
	}
	handle("", func(*http.Request) any {
		return &metav1.APIResourceList{GroupVersion: metricsv1beta1.SchemeGroupVersion.String(),
			APIResources: []metav1.APIResource{
				{Name: "nodes", Kind: "NodeMetrics", Verbs: read},
				{Name: "pods", Kind: "PodMetrics", Namespaced: true, Verbs: read},
			}}
	})
	handle("/nodes", func(*http.Request) any { return &metricsv1beta1.NodeMetricsList{Items: s.nodes()} })
	handle("/nodes/{name}", func(r *http.Request) any {
		return find(s.nodes(), func(n metricsv1beta1.NodeMetrics) bool { return n.Name == r.PathValue("name") })
	})
	handle("/pods", func(*http.Request) any { return &metricsv1beta1.PodMetricsList{Items: s.pods()} })
	handle("/namespaces/{namespace}/pods", func(r *http.Request) any {
		return &metricsv1beta1.PodMetricsList{Items: slices.DeleteFunc(s.pods(),
			func(p metricsv1beta1.PodMetrics) bool {
				return p.Namespace != r.PathValue("namespace")
			})}
	})
	handle("/namespaces/{namespace}/pods/{name}", func(r *http.Request) any {
		return find(s.pods(), func(p metricsv1beta1.PodMetrics) bool {
			return p.Namespace == r.PathValue("namespace") && p.Name == r.PathValue("name")
		})
	})
	return mux
}

// find returns the first element that matches, or nil.
func find[T any](all []T, matches func(T) bool) any {
	i := slices.IndexFunc(all, matches)
	if i < 0 {
		return nil
	}
	return all[i]
}

func failure(code int32, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: code,
		Reason: reason, Message: message,
	}
}
