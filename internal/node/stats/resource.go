package stats

import (
	dto "github.com/prometheus/client_model/go"

	"github.com/berth-run/berth/internal/base/usage"
)

// Resource serves /metrics/resource: CPU and memory of the node, its pods and their containers, for the resource
// metrics pipeline (KEP-1867). Names, labels and timestamps are the kubelet's; metrics-server computes rates from the
// timestamps.
type Resource struct{ *Stats }

// Gather implements prometheus.Gatherer. It omits what it cannot read and then sets scrape_error to 1.
func (r Resource) Gather() ([]*dto.MetricFamily, error) {
	f := families{}
	root, pods, failed := r.all(usage.Brief)
	if root.Stats != nil {
		f.use("node", nil, root)
	}
	for _, p := range pods {
		of := labelled("namespace", p.Namespace, "pod", p.Name)
		f.use("pod", of, p.sample)
		for _, c := range p.containers {
			of := of.with("container", c.Name)
			f.use("container", of, c.sample)
			if limit, ok := c.SwapLimit(); ok {
				f.addAt(gauge("container_swap_limit_bytes", "Swap that the container may use, in bytes"), of,
					float64(limit), c.At)
			}
			if began := c.Started.UnixNano(); !c.Started.IsZero() {
				f.add(gauge("container_start_time_seconds", "Start of the container, in seconds since the epoch"), of,
					float64(began)/1e9)
			}
		}
	}
	f.add(gauge("scrape_error", "1 if something could not be read, 0 otherwise"), nil, failed)
	f.add(gauge("resource_scrape_error", "1 if something could not be read, 0 otherwise"), nil, failed)
	return f.list(), nil
}

// use adds the series of a node, pod or container.
func (f families) use(what string, of labels, s sample) {
	f.addAt(counter(what+"_cpu_usage_seconds_total", "Cumulative CPU time that the "+what+" has used, in core seconds"),
		of, seconds(s.CpuStats.CpuUsage.TotalUsage), s.At)
	f.addAt(gauge(what+"_memory_working_set_bytes", "Working set of the "+what+", in bytes"), of,
		float64(s.WorkingSet()), s.At)
	f.addAt(gauge(what+"_swap_usage_bytes", "Swap that the "+what+" uses, in bytes"), of, float64(s.Swap()), s.At)
}

func seconds(ns uint64) float64 { return float64(ns) / 1e9 }
