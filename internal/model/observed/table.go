package observed

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/pod"
)

// Table holds the last reading of each pod that the runtime knows, by UID.
type Table struct {
	*store.Table[types.UID, *pod.Observed]
	synced chan struct{}
	once   sync.Once
}

// New returns an empty table that is not synced.
func New() *Table {
	return &Table{Table: store.New[types.UID, *pod.Observed](), synced: make(chan struct{})}
}

// Observed returns the last reading of a pod, nil if the runtime does not know the pod.
func (t *Table) Observed(uid types.UID) *pod.Observed {
	o, _ := t.Get(uid)
	return o
}

// MarkSynced says that the table has held everything in the runtime. Only the writer calls it.
func (t *Table) MarkSynced() { t.once.Do(func() { close(t.synced) }) }

// Synced is closed after the table has held everything in the runtime once.
func (t *Table) Synced() <-chan struct{} { return t.synced }

// Await waits until the table is synced or ctx ends.
func (t *Table) Await(ctx context.Context) error {
	select {
	case <-t.synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
