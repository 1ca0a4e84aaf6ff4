package source

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/source/content"
)

// replaceObjects sets the objects that an origin wants. The caller holds m.mu.
func (m *merge) replaceObjects(o *offer, items []*content.Item, at time.Time) {
	was := o.objects
	o.objects, o.refused = make([]*content.Item, len(items)), nil
	for n, now := range items {
		var err error
		before := slices.IndexFunc(was, func(w *content.Item) bool { return w.Key() == now.Key() })
		if before < 0 {
			o.objects[n], err = content.Succeed(nil, now, at)
		} else {
			o.objects[n], err = content.Succeed(was[before], now, at)
		}
		if err != nil {
			o.refused = append(o.refused, Problem{Origin: now.Origin, Err: err}.About(now.Key()))
		}
	}
}

// settleObjects updates the table of objects. Each name goes to the cluster, or else to its first claim.
func (m *merge) settleObjects() (problems []Problem) {
	var claims []claim[*content.Item]
	for origin, o := range m.origins {
		for n, i := range o.objects {
			claims = append(claims, claim[*content.Item]{i, m.order[claimed{origin, i.Key()}], n})
		}
	}
	sortClaims(claims)
	first := map[object.Key]*content.Item{}
	for _, c := range claims {
		key := c.want.Key()
		if m.cluster.Object(key) != nil {
			problems = append(problems, Problem{Origin: c.want.Origin, Err: reason.New(reason.FailedValidation,
				"%s: %s exists in the cluster too, whose object is used: rename it, or remove one of the two",
				c.want.Origin, key)}.About(key))
			continue
		}
		if other, taken := first[key]; taken {
			problems = append(problems, Problem{Origin: c.want.Origin, Err: reason.New(reason.FailedValidation,
				"%s: %s is already defined by %s: rename it, or remove one of the two", c.want.Origin, key,
				other.Origin)}.About(key))
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
		if slices.ContainsFunc(o.objects, func(i *content.Item) bool { return i.Key() == key }) {
			return true
		}
	}
	return false
}

// holder returns the origin's object in the table, false if the name is free or the cluster's.
func (m *merge) holder(key object.Key) (*content.Item, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, _ := offered(m, key)
	return i, i != nil
}

// offered returns the origin's object in the table, nil if there is none, and what the origin offers. The caller holds
// m.mu.
func offered(m *merge, key object.Key) (*content.Item, offer) {
	row, ok := m.objects.Get(key)
	if !ok {
		return nil, offer{}
	}
	for _, o := range m.origins {
		for _, i := range o.objects {
			if i.Value == row {
				return i, o
			}
		}
	}
	return nil, offer{}
}
