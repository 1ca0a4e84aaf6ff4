package gc

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// RemoveDead removes the dead containers and sandboxes that no pod needs, because the disk is short. Of pods in ended
// it removes all, and of other pods all but the newest instance of each container. Logs stay. It returns the ids of
// the removed containers.
func (g *Collector) RemoveDead(ctx context.Context, ended map[types.UID]bool) (removed []string, err error) {
	var errs []error
	for uid, o := range g.opts.Observed.Snapshot().All() {
		w, _ := decide(o, ended[uid], Policy{Total: -1}, nil, time.Now())
		if err := g.remove(ctx, o, w); err != nil {
			errs = append(errs, err)
			continue
		}
		for _, c := range w.Containers {
			removed = append(removed, c.ID)
		}
	}
	return removed, errors.Join(errs...)
}
