package content

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/source/manifest"
)

// Item is an object besides pods that an origin wants. Its value is never changed once the merge has it.
type Item struct {
	object.Value
	// Origin is where the object was read.
	Origin string
	// Ephemeral says that the object belongs to a foreground run and is not stored.
	Ephemeral bool
}

// Key returns the key of the object.
func (i *Item) Key() object.Key { return object.KeyOf(i.Value) }

// CompleteObject turns an object of a manifest into the wanted one. o must not be used afterwards.
func CompleteObject(o manifest.Object) (*Item, error) {
	v := o.Value
	strip(v)
	kind, _ := object.KindNamed(object.KeyOf(v).Kind)
	if v.GetNamespace() == "" && kind.Namespaced {
		v.SetNamespace(metav1.NamespaceDefault)
	}
	object.Default(v)
	v.GetObjectKind().SetGroupVersionKind(kind.GroupVersionKind())
	if err := manifest.Invalid(object.Validate(v)); err != nil {
		return nil, Invalid(o, err)
	}
	return &Item{Value: v, Origin: o.Origin}, nil
}

// identify gives the object of a file or URL a UID that stays the same after an edit.
func (i *Item) identify(origin, node string) {
	if i.GetUID() == "" {
		i.SetUID(types.UID(Hash([]byte(i.Key().String()), "host:"+node, "origin:"+origin)))
	}
}

// Succeed returns the object that follows was, which may be nil. If an immutable object changed, it returns was and an
// error.
func Succeed(was, now *Item, at time.Time) (*Item, error) {
	switch {
	case was == nil || was == now:
		if created := now.GetCreationTimestamp(); created.IsZero() {
			now.SetCreationTimestamp(metav1.NewTime(at).Rfc3339Copy())
		}
		return now, nil
	case object.Same(was.Value, now.Value):
		return was, nil
	}
	if err := manifest.Invalid(object.ValidateUpdate(was.Value, now.Value)); err != nil {
		return was,
			reason.New(reason.FailedValidation, "%s: %s: %w; the old version stays; next: delete it, then add it again",
				now.Origin, now.Key(), err)
	}
	now.SetUID(was.GetUID())
	now.SetCreationTimestamp(was.GetCreationTimestamp())
	return now, nil
}
