package local

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/source"
	"github.com/berth-run/berth/internal/pod/status"
)

// Past has the tables of a node whose pods are shown and not run.
type Past struct {
	Sources  *source.Sources
	Record   *status.Record
	Fleet    *fleet.Fleet
	Statuses *status.Statuses
}

// Restore waits until Sources has the pods that are on disk, and shows them with their last statuses.
func (p Past) Restore(ctx context.Context) error {
	select {
	case <-p.Sources.LocalSynced():
	case <-ctx.Done():
		return fmt.Errorf("read the pods of the root directory: %w", context.Cause(ctx))
	}
	var pods []*pod.Pod
	ended := map[types.UID]bool{}
	for uid, one := range p.Sources.Desired.Snapshot().All() {
		pods = append(pods, one)
		ended[uid] = pod.Ended(p.Record.Last(uid).Phase)
	}
	slices.SortFunc(pods, func(p, q *pod.Pod) int { return p.Seen.Compare(q.Seen) })
	p.Fleet.Restore(pods, ended)
	p.Statuses.Restore(pods)
	return nil
}
