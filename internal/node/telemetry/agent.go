package telemetry

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Agent describes this process.
type Agent struct {
	Node string
	// Version is the Kubernetes version that the node reports, with its major and minor number. Alerts compare it with
	// other nodes of the cluster.
	Version, Major, Minor string
	// Commit and Built are the source commit and time of the build. Empty: unknown.
	Commit, Built string
	// Unified is true if the host has cgroup version 2.
	Unified bool
}

// Register registers the metrics of the agent, its process and Go's runtime.
func (a Agent) Register(reg prometheus.Registerer) error {
	constant := func(name, help string, v float64, l prometheus.Labels) prometheus.Collector {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: l})
		g.Set(v)
		return g
	}
	version := 1.0
	if a.Unified {
		version = 2
	}
	err := errors.Join(
		reg.Register(collectors.NewGoCollector()),
		reg.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
		reg.Register(constant("kubelet_node_name", "The node's name, as a label; always 1.", 1,
			prometheus.Labels{"node": a.Node})),
		reg.Register(constant("kubelet_cgroup_version", "Version of the host's cgroups, 1 or 2.", version, nil)),
		reg.Register(constant("kubernetes_build_info", "What this program is, as labels; always 1.", 1,
			prometheus.Labels{
				"major": a.Major, "minor": a.Minor, "git_version": a.Version, "git_commit": a.Commit,
				"git_tree_state": "", "build_date": a.Built,
				"go_version": runtime.Version(), "compiler": runtime.Compiler,
				"platform": runtime.GOOS + "/" + runtime.GOARCH,
			})),
	)
	if err != nil {
		return fmt.Errorf("register metrics of the agent: %w", err)
	}
	return nil
}
