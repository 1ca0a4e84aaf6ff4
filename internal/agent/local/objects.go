package local

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/source"
	"github.com/berth-run/berth/internal/pod/steps/claim"
)

// Objects are the ConfigMaps, Secrets, claims and other objects that pods refer to. It implements server.Objects.
type Objects struct {
	Table  *object.Table
	Claims *claim.Claims
	Local  *source.Local
}

// Snapshot implements server.Objects. Claims are shown with the volume, and volumes with the claim, that they are bound
// to.
func (x Objects) Snapshot() store.Snapshot[object.Key, runtime.Object] {
	rows, revision := x.Claims.Rows()
	return x.Table.Snapshot().With(rows, revision)
}

// Delete implements server.Objects.
func (x Objects) Delete(ctx context.Context, key object.Key) error {
	err := x.delete(ctx, key)
	switch {
	case errors.Is(err, source.ErrTaken):
		return answer.BadRequest(err.Error(), "remove its manifest there")
	case errors.Is(err, source.ErrNotFound):
		return answer.ObjectNotFound(key)
	}
	return err
}

func (x Objects) delete(ctx context.Context, key object.Key) error {
	if key.Kind != object.PersistentVolumeClaim {
		return x.Local.DeleteObject(ctx, key)
	}
	bare, err := x.Claims.Delete(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name}, x.Local)
	if bare && errors.Is(err, source.ErrNotFound) {
		return nil
	}
	return err
}
