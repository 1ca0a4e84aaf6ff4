package telemetry

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Agent is what runs here.
type Agent struct {
	Node string
	// Version is the version of Kubernetes that the node says it is of, with its
	// major and minor number: alerts compare it with the others of the cluster.
	Version, Major, Minor string
	// Commit that the program was built of, and Built when; empty where it was not
	// told.
	Commit, Built string
	// Unified says that the host has cgroups of version 2.
	Unified bool
}

// Register has the agent, its process and Go's runtime told of.
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
