package source

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/source/cluster"
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

// settleObject updates one name in the table.
func (m *merge) settleObject(key object.Key) {
	if i, _, ok := m.claims.items.Winner(slot{name: key}); ok {
		m.hold(key, i.Value)
	} else {
		m.objects.Delete(key)
	}
}

// hold puts an object into the table unless it is there already.
func (m *merge) hold(key object.Key, v runtime.Object) {
	if old, ok := m.objects.Get(key); !ok || old != v {
		m.objects.Put(key, v)
	}
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
	i, origin, ok := m.claims.items.Winner(slot{name: key})
	if !ok || i.Origin == cluster.Origin {
		return nil, offer{}
	}
	return i, m.origins[origin]
}
