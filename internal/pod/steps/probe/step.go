package probe

import (
	"context"

	"github.com/berth-run/berth/internal/pod/worker"
)

// Step is the probes' step in a pod's life. In the list of steps it comes after the containers, so its Teardown runs
// before theirs. Liveness and startup probes end when the pod shall stop. Readiness probes continue until the
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
