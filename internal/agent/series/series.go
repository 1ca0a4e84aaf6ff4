package series

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/node/telemetry"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/pleg"
	"github.com/berth-run/berth/internal/pod/source"
	"github.com/berth-run/berth/internal/pod/worker"
	"github.com/berth-run/berth/internal/record/timeline"
)

// Part has series of its own.
type Part interface {
	Register(prometheus.Registerer) error
}

// Options of Register. All are required.
type Options struct {
	Registry *prometheus.Registry
	Node     string
	// Version is the version of Kubernetes that the node says it is of, as v1.36.3.
	Version  string
	Unified  bool
	Sources  *source.Sources
	PLEG     *pleg.PLEG
	Fleet    *fleet.Fleet
	Timeline *timeline.Recorder
	Parts    []Part
}

// Register registers all series, and makes what counts the starts of pods.
func Register(o Options) (*telemetry.Starts, error) {
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
		Desired: o.Sources.Desired, Observed: o.PLEG.Table(), Mirrors: o.Sources.Cluster.Mirrors.Len,
		Active: func(uid types.UID) bool {
			m, ok := o.Fleet.Member(uid)
			return ok && m.Working && m.State.Stage == worker.Syncing
		},
	})))
	starts, err := telemetry.NewStarts(o.Registry, o.Timeline.Get, time.Now)
	return starts, errors.Join(append(errs, err)...)
}
