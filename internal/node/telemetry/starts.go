package telemetry

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/timeline"
)

// Starts measures pod starts and counts ended containers. Its methods may be called from any goroutine.
//
// kubelet_pod_start_duration_seconds is the node's own part: from seeing the pod first until it runs. The total and the
// service level indicator last from the pod's creation until its running state is visible to others. The indicator
// excludes image pulls and init containers, and it covers only the pods that the pod startup latency SLI of
// sig-scalability covers.
type Starts struct {
	timelines Timelines
	now       func() time.Time

	seen, total, sli prometheus.Histogram
	first            prometheus.Gauge

	mu        sync.Mutex
	starting  map[types.UID]progress
	networked bool // first has been set
	ends      ends
}

// progress of a pod's start.
type progress int

const (
	coming   progress = iota
	runs              // its status is running
	shown             // others see that status too
	excluded          // it started before this process, or once had no node
)

// Timelines has the recorded timelines of pods, which include their image pulls.
type Timelines interface {
	Get(types.UID) (timeline.Timeline, bool)
}

// NewStarts returns a Starts.
func NewStarts(reg prometheus.Registerer, timelines Timelines, now func() time.Time) (*Starts, error) {
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: []float64{
			0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700,
			3600}})
	}
	s := &Starts{
		timelines: timelines, now: now, starting: map[types.UID]progress{}, ends: newEnds(now()),
		seen: histogram("kubelet_pod_start_duration_seconds",
			"Duration in seconds from the node's first sight of a pod until all its containers run."),
		total: histogram("kubelet_pod_start_total_duration_seconds",
			"Duration in seconds from a pod's creation until all its containers are seen to run."),
		sli: histogram("kubelet_pod_start_sli_duration_seconds",
			"Duration in seconds from a pod's creation until all its containers are seen to run, without image pulls "+
				"and init containers, of pods without state."),
		first: prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_first_network_pod_start_sli_duration_seconds",
			Help: "As kubelet_pod_start_sli_duration_seconds, of the first pod that is not on the host's network."}),
	}
	if err := errors.Join(reg.Register(s.seen), reg.Register(s.total), reg.Register(s.sli), reg.Register(s.first),
		reg.Register(s.ends.total)); err != nil {
		return nil, fmt.Errorf("register metrics of pod starts: %w", err)
	}
	return s, nil
}

// Status records a newly computed status of a pod.
func (s *Starts) Status(p *pod.Pod, status corev1.PodStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends.status(p.UID, status)
	at, known := s.starting[p.UID]
	switch {
	case !known && (running(status) || pod.Ended(status.Phase) || unschedulable(p.Pod)):
		s.starting[p.UID] = excluded
	case !known:
		s.starting[p.UID] = coming
	case at == coming && pod.Ended(status.Phase):
		s.starting[p.UID] = excluded
	case at == coming && running(status):
		s.starting[p.UID] = runs
		s.seen.Observe(s.now().Sub(p.Seen).Seconds())
	}
}

// Shown records a status that is visible to others: from the API server's watch or, for a pod that the API server does
// not have, in the local API.
func (s *Starts) Shown(p *pod.Pod, status corev1.PodStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.starting[p.UID] != runs || !running(status) {
		return
	}
	s.starting[p.UID] = shown
	created := p.CreationTimestamp.Time
	if created.IsZero() {
		created = p.Seen
	}
	total := s.now().Sub(created)
	s.total.Observe(total.Seconds())
	if stateful(p.Pod) {
		return
	}
	took := max(0, total-s.pulls(p.UID)-inits(status)).Seconds()
	s.sli.Observe(took)
	if !s.networked && !p.Spec.HostNetwork {
		s.networked = true
		s.first.Set(took)
	}
}

// Forget drops a pod that is gone.
func (s *Starts) Forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.starting, uid)
	delete(s.ends.known, uid)
}

// pulls returns for how long the pod waited for at least one image.
func (s *Starts) pulls(uid types.UID) time.Duration {
	line, ok := s.timelines.Get(uid)
	if !ok {
		return 0
	}
	var all []interval
	for _, span := range line.Spans {
		if span.Kind == timeline.KindImage && !span.End.IsZero() {
			all = append(all, interval{span.Start, span.End})
		}
	}
	return merged(all)
}
