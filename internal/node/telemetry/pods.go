package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/pod"
)

// Pods counts pods and containers on each scrape. It implements prometheus.Collector.
type Pods struct {
	o PodsOptions

	running, containers, wanted, admitted, mirrors, ephemeral *prometheus.Desc
}

// PodsOptions configure Pods. All are required.
type PodsOptions struct {
	Desired  *store.Table[types.UID, *pod.Pod]
	Observed *store.Table[types.UID, *pod.Observed]
	Fleet    fleet
	// Mirrors has the mirror pods. It is empty without an API server.
	Mirrors *store.Table[types.NamespacedName, *corev1.Pod]
}

// fleet is the set of pods that this node works on.
type fleet interface {
	// Working reports whether the node has admitted a pod.
	Working(types.UID) bool
	// Syncing returns a pod that is not ending. ok is false if the pod is no member, or ends, or has ended.
	Syncing(types.UID) (p *corev1.Pod, ok bool)
}

// active reports whether a pod is admitted and has not ended: it holds resources of the node.
func (p *Pods) active(uid types.UID) bool {
	_, syncing := p.o.Fleet.Syncing(uid)
	return syncing && p.o.Fleet.Working(uid)
}

// NewPods returns a collector.
func NewPods(o PodsOptions) *Pods {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &Pods{
		o:       o,
		running: d("kubelet_running_pods", "Number of pods that have a running pod sandbox."),
		containers: d("kubelet_running_containers", "Number of containers of running pods, by state.",
			"container_state"),
		wanted: d("kubelet_desired_pods",
			`Number of pods that this node is to run; static is "true" for those that are not of the API server.`,
			"static"),
		admitted: d("kubelet_active_pods",
			`Number of pods that are admitted and not at their end; static is "true" for those that are not of `+
				"the API server.", "static"),
		mirrors: d("kubelet_mirror_pods", "Number of mirror pods, by which the API server knows of static pods."),
		ephemeral: d("kubelet_managed_ephemeral_containers",
			"Number of ephemeral containers of the pods of this node."),
	}
}

// Describe implements prometheus.Collector.
func (p *Pods) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{p.running, p.containers, p.wanted, p.admitted, p.mirrors, p.ephemeral} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (p *Pods) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	running, states := population(p.o.Observed.Snapshot())
	gauge(p.running, running)
	for state, n := range states {
		gauge(p.containers, n, state)
	}
	// The value of the label static. The kubelet uses "" for pods of the API server.
	wanted, active := map[string]int{"": 0, "true": 0}, map[string]int{"": 0, "true": 0}
	ephemeral := 0
	for uid, one := range p.o.Desired.Snapshot().All() {
		static := ""
		if one.Source != pod.SourceAPI {
			static = "true"
		}
		wanted[static]++
		ephemeral += len(one.Spec.EphemeralContainers)
		if p.active(uid) {
			active[static]++
		}
	}
	for static, n := range wanted {
		gauge(p.wanted, n, static)
		gauge(p.admitted, active[static], static)
	}
	gauge(p.mirrors, p.o.Mirrors.Len())
	gauge(p.ephemeral, ephemeral)
}

// population counts pods with a ready sandbox, and containers by state.
func population(s store.Snapshot[types.UID, *pod.Observed]) (running int, states map[string]int) {
	states = map[string]int{"created": 0, "running": 0, "exited": 0, "unknown": 0}
	names := map[pod.ContainerState]string{pod.StateCreated: "created", pod.StateRunning: "running",
		pod.StateExited: "exited", pod.StateUnknown: "unknown"}
	for _, o := range s.All() {
		if box, ok := o.Sandbox(); ok && box.Ready {
			running++
		}
		for _, c := range o.Containers {
			states[names[c.State]]++
		}
	}
	return running, states
}
