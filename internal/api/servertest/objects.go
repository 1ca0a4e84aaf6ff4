package servertest

import (
	"context"

	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/model/object"
)

// objects serves a table that tests fill.
type objects struct{ *object.Table }

func (o objects) Delete(_ context.Context, key object.Key) error {
	if _, ok := o.Get(key); !ok {
		return answer.ObjectNotFound(key)
	}
	o.Table.Delete(key)
	return nil
}
