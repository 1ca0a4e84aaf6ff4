package agent

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-run/berth/internal/object"
	"github.com/berth-run/berth/internal/server"
	"github.com/berth-run/berth/internal/source"
	"github.com/berth-run/berth/internal/store"
)

// objectStore is the agent's view of the ConfigMaps, Secrets and the like that
// pods name.
type objectStore struct{ a *Agent }

// wake has what waits for an object tried again when it comes or changes.
func (x objectStore) wake(ctx context.Context) error {
	watcher := x.a.sources.Objects.Watch()
	defer watcher.Stop()
	for {
		changes, err := watcher.Next(ctx)
		if err != nil {
			return err
		}
		keys := map[object.Key]bool{}
		for _, c := range changes {
			keys[c.Key] = true
		}
		x.a.fleet.ObjectsChanged(keys)
	}
}

// Snapshot implements server.Objects.
func (x objectStore) Snapshot() store.Snapshot[object.Key, runtime.Object] {
	return x.a.sources.Objects.Snapshot()
}

// Delete implements server.Objects.
func (x objectStore) Delete(ctx context.Context, key object.Key) error {
	err := x.a.sources.Local.DeleteObject(ctx, key)
	switch {
	case errors.Is(err, source.ErrTaken):
		return server.BadRequest(err.Error(), "remove its manifest there")
	case errors.Is(err, source.ErrNotFound):
		return server.ObjectNotFound(key)
	}
	return err
}
