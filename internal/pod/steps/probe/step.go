package probe

import (
	"context"

	"github.com/berth-run/berth/internal/pod/worker"
)

// Step is the probes' place in a pod's life. It stands behind the containers in
// the list of steps, so that its Teardown comes before theirs: liveness and
// startup probes end when the pod is to stop, readiness probes go on until the
// containers have stopped.
func (p *Probes) Step() worker.Step {
	return worker.Step{
		Name:  "probe",
		Phase: worker.Act,
		After: []string{"poddir"},
		Setup: func(ctx context.Context, r *worker.Run) error {
			p.sync(ctx, r.Pod, r.Observed, false)
			return nil
		},
		Teardown: func(ctx context.Context, r *worker.Run) error {
			p.sync(ctx, r.Pod, r.Observed, true)
			return nil
		},
	}
}
