package series

import (
	"errors"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-run/berth/internal/model/observed"
	"github.com/berth-run/berth/internal/node/telemetry"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/source"
)

// Part is a part of the agent that has its own metrics.
type Part interface {
	Register(prometheus.Registerer) error
}

// Options of Register. All are required.
type Options struct {
	Registry *prometheus.Registry
	Node     string
	// Version is the Kubernetes version that the node reports, such as v1.36.3.
	Version string
	Unified bool
	Sources *source.Sources
	PLEG    Part
	// Observed are the pods that the runtime shows.
	Observed *observed.Table
	Fleet    *fleet.Fleet
	Parts    []Part
}

// Register registers all series.
func Register(o Options) error {
	major, rest, _ := strings.Cut(strings.TrimPrefix(o.Version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	parts := append(slices.Clone(o.Parts),
		telemetry.Agent{Node: o.Node, Version: o.Version, Major: major, Minor: minor, Unified: o.Unified}, o.PLEG,
		o.Fleet)
	var errs []error
	for _, part := range parts {
		errs = append(errs, part.Register(o.Registry))
	}
	errs = append(errs, o.Registry.Register(telemetry.NewPods(telemetry.PodsOptions{
		Desired: o.Sources.Desired, Observed: o.Observed.Table, Mirrors: o.Sources.Cluster.Mirrors,
		Fleet: o.Fleet,
	})))
	return errors.Join(errs...)
}
