package source

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/source/manifest"
)

// item is an object besides pods that an origin wants. Its value is never changed once the merge has it.
type item struct {
	object.Value
	origin string
	// ephemeral says that the object belongs to a foreground run and is not stored.
	ephemeral bool
}

func (i *item) key() object.Key { return object.KeyOf(i.Value) }

// completed turns an object of a manifest into the wanted one. o must not be used afterwards.
func completed(o manifest.Object) (*item, error) {
	v := o.Value
	strip(v)
	kind, _ := object.KindNamed(object.KeyOf(v).Kind)
	if v.GetNamespace() == "" && kind.Namespaced {
		v.SetNamespace(metav1.NamespaceDefault)
	}
	object.Default(v)
	v.GetObjectKind().SetGroupVersionKind(kind.GroupVersionKind())
	if err := manifest.Invalid(object.Validate(v)); err != nil {
		return nil, invalid(o, err)
	}
	return &item{Value: v, origin: o.Origin}, nil
}

// identify gives the object of a file or URL a UID that stays the same after an edit.
func (i *item) identify(origin, node string) {
	if i.GetUID() == "" {
		i.SetUID(types.UID(contentHash([]byte(i.key().String()), "host:"+node, "origin:"+origin)))
	}
}

// succeed returns the object that follows was, which may be nil. If an immutable object changed, it returns was and an
// error.
func succeed(was, now *item, at time.Time) (*item, error) {
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
				now.origin, now.key(), err)
	}
	now.SetUID(was.GetUID())
	now.SetCreationTimestamp(was.GetCreationTimestamp())
	return now, nil
}

// replaceObjects sets the objects that an origin wants. The caller holds m.mu.
func (m *merge) replaceObjects(o *offer, items []*item, at time.Time) {
	was := o.objects
	o.objects, o.refused = make([]*item, len(items)), nil
	for n, now := range items {
		var err error
		before := slices.IndexFunc(was, func(w *item) bool { return w.key() == now.key() })
		if before < 0 {
			o.objects[n], err = succeed(nil, now, at)
		} else {
			o.objects[n], err = succeed(was[before], now, at)
		}
		if err != nil {
			o.refused = append(o.refused, Problem{Origin: now.origin, Err: err}.about(now.key()))
		}
	}
}

// settleObjects updates the table of objects. Each name goes to the cluster, or else to its first claim.
func (m *merge) settleObjects() (problems []Problem) {
	var claims []claim[*item]
	for origin, o := range m.origins {
		for n, i := range o.objects {
			claims = append(claims, claim[*item]{i, m.order[claimed{origin, i.key()}], n})
		}
	}
	sortClaims(claims)
	first := map[object.Key]*item{}
	for _, c := range claims {
		key := c.want.key()
		if m.cluster.Object(key) != nil {
			problems = append(problems, Problem{Origin: c.want.origin, Err: reason.New(reason.FailedValidation,
				"%s: %s exists in the cluster too, whose object is used: rename it, or remove one of the two",
				c.want.origin, key)}.about(key))
			continue
		}
		if other, taken := first[key]; taken {
			problems = append(problems, Problem{Origin: c.want.origin, Err: reason.New(reason.FailedValidation,
				"%s: %s is already defined by %s: rename it, or remove one of the two", c.want.origin, key,
				other.origin)}.about(key))
			continue
		}
		first[key] = c.want
	}
	for key := range m.objects.Snapshot().All() {
		if first[key] == nil && m.cluster.Object(key) == nil {
			m.objects.Delete(key)
		}
	}
	for key, i := range first {
		m.hold(key, i.Value)
	}
	for key, v := range m.cluster.Objects() {
		m.hold(key, v)
	}
	return problems
}

// hold puts an object into the table unless it is there already.
func (m *merge) hold(key object.Key, v runtime.Object) {
	if old, ok := m.objects.Get(key); !ok || old != v {
		m.objects.Put(key, v)
	}
}

// supplied reports whether an origin wants an object of that name.
func (m *merge) supplied(key object.Key) bool {
	for _, o := range m.origins {
		if slices.ContainsFunc(o.objects, func(i *item) bool { return i.key() == key }) {
			return true
		}
	}
	return false
}

// holder returns the origin's object in the table, false if the name is free or the cluster's.
func (m *merge) holder(key object.Key) (*item, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	row, ok := m.objects.Get(key)
	if !ok {
		return nil, false
	}
	for _, o := range m.origins {
		for _, i := range o.objects {
			if i.Value == row {
				return i, true
			}
		}
	}
	return nil, false
}
