package source

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/source/cluster"
	"github.com/berth-run/berth/internal/pod/source/identity"
)

// merge joins what the sources want into the tables, whose only writer it is. Sources call it from their own goroutines.
type merge struct {
	desired  *store.Table[types.UID, *pod.Pod]
	objects  *object.Table
	problems *store.Table[ProblemKey, Problem]
	report   reporter
	log      *slog.Logger
	taken    func(types.UID) bool

	mu      sync.Mutex
	origins map[string]offer
	cluster *cluster.Set
	order   map[claimed]uint64
	last    uint64
	static  *identity.Identities
	classes map[types.UID]classed
	changed chan struct{} // wakes keep
}

// offer is what one origin wants and cannot give.
type offer struct {
	// base are the pods as the origin gave them, pods as they are wanted.
	base, pods []*pod.Pod
	objects    []*item
	problems   []Problem
	// refused are changes of objects that may not change so.
	refused []Problem
}

// claimed is a name wanted by an origin.
type claimed struct {
	origin string
	key    object.Key
}

func podKey(name types.NamespacedName) object.Key {
	return object.Key{Kind: "Pod", Namespace: name.Namespace, Name: name.Name}
}

func newMerge(o Options) *merge {
	static := identity.New(o.Identities)
	static.Adopt = o.Adopt
	return &merge{
		desired:  store.New[types.UID, *pod.Pod](),
		objects:  store.New[object.Key, runtime.Object](),
		problems: store.New[ProblemKey, Problem](),
		report:   o.Report,
		log:      o.Log,
		taken:    o.Taken,
		origins:  map[string]offer{},
		cluster:  cluster.New(o.NodeName),
		order:    map[claimed]uint64{},
		classes:  map[types.UID]classed{},
		static:   static,
		changed:  make(chan struct{}, 1),
	}
}

// put replaces what an origin wants. It is the merge's from then on; at is when
// the origin was found changed.
func (m *merge) put(origin string, w wanted, problems []Problem, at time.Time) {
	m.mu.Lock()
	m.replace(origin, w.pods, at)
	o := m.origins[origin]
	o.problems = problems
	m.replaceObjects(&o, w.objects, at)
	m.origins[origin] = o
	m.settle(origin, at)
}

// replace makes pods what an origin wants; m.mu is held.
func (m *merge) replace(origin string, pods []*pod.Pod, at time.Time) {
	o := m.origins[origin]
	adopted := make([]*pod.Pod, len(pods))
	for i, p := range pods {
		if p.Source != pod.SourceLocal {
			p = m.static.Identify(origin, p)
		}
		adopted[i] = adopt(o.pods, p, at)
	}
	o.base, o.pods = pods, adopted
	m.origins[origin] = o
}

// drop forgets an origin.
func (m *merge) drop(origin string, at time.Time) {
	m.mu.Lock()
	delete(m.origins, origin)
	m.settle(origin, at)
}

// owner is who has a name now.
func (m *merge) owner(name types.NamespacedName) (*pod.Pod, bool) {
	for _, p := range m.desired.Snapshot().All() {
		if p.Key() == name {
			return p, true
		}
	}
	return nil, false
}

// adopt gives a pod the time at which its origin first had this UID, and returns
// the earlier value if nothing else changed either.
func adopt(was []*pod.Pod, p *pod.Pod, at time.Time) *pod.Pod {
	for _, old := range was {
		if old.UID != p.UID {
			continue
		}
		if old == p {
			return old
		}
		stamp(p, old.Seen)
		if same(old, p) {
			return old
		}
		return p
	}
	if p.Seen.IsZero() {
		p.Seen = at
	}
	stamp(p, p.Seen)
	return p
}

func stamp(p *pod.Pod, seen time.Time) {
	p.Seen = seen
	annotate(p.Pod, pod.AnnotationConfigSeen, seen.Format(time.RFC3339Nano))
}

// settle brings the tables to what the origins want; it unlocks m.mu. Pods that
// go are told before pods that come: the two may have the same name.
func (m *merge) settle(origin string, at time.Time) {
	m.number(origin)
	m.forget(origin)
	objectProblems := m.settleObjects() // first: pods that come find what they name
	winners, problems := resolve(m.claims())
	problems = append(problems, objectProblems...)
	for _, o := range m.origins {
		problems = append(append(problems, o.problems...), o.refused...)
	}
	problems = append(problems, m.refusals()...)
	wanted := map[types.UID]bool{}
	m.classify(winners)
	for _, p := range winners {
		wanted[p.UID] = true
	}
	for uid := range m.desired.Snapshot().All() {
		if !wanted[uid] {
			m.desired.Delete(uid)
		}
	}
	for _, p := range winners {
		if old, ok := m.desired.Get(p.UID); !ok || old != p {
			m.desired.Put(p.UID, p)
		}
	}
	told := m.settleProblems(problems, at)
	m.mu.Unlock()
	for _, p := range told {
		m.log.Warn("manifest not taken", p.attrs()...)
		m.report.SourceProblem(p)
	}
}

// number gives each name that an origin now wants its place, and takes it from
// those that it does not want any more.
func (m *merge) number(origin string) {
	wants := map[claimed]bool{}
	want := func(key object.Key) {
		c := claimed{origin, key}
		wants[c] = true
		if m.order[c] == 0 {
			m.last++
			m.order[c] = m.last
		}
	}
	for _, p := range m.origins[origin].pods {
		want(podKey(p.Key()))
	}
	for _, i := range m.origins[origin].objects {
		want(i.key())
	}
	for c := range m.order {
		if c.origin == origin && !wants[c] {
			delete(m.order, c)
		}
	}
}

// forget drops the identities of an origin's pods that it does not want any
// more. While something is wrong with it nobody knows.
func (m *merge) forget(origin string) {
	if origin == originLocal || len(m.origins[origin].problems) > 0 {
		return
	}
	m.static.Retain(func(at string) bool {
		name, mine := strings.CutPrefix(at, origin+" ")
		return !mine || m.order[claimed{origin, podKey(parseName(name))}] != 0
	})
	if m.static.Dirty() {
		select {
		case m.changed <- struct{}{}:
		default:
		}
	}
}

// keepDelay is how long changes of identities are gathered before they are written.
const keepDelay = 200 * time.Millisecond

// keep writes the identities to disk when they have changed, and once more when
// ctx ends. When all sources were read it forgets those of places that are gone.
func (m *merge) keep(ctx context.Context, synced <-chan struct{}) error {
	for {
		select {
		case <-synced:
			synced = nil
			m.mu.Lock()
			m.static.Adopt = nil
			m.static.Retain(m.isPlace)
			m.mu.Unlock()
		case <-m.changed:
		case <-ctx.Done():
			m.flush()
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
		case <-time.After(keepDelay):
		}
		m.flush()
	}
}

func (m *merge) isPlace(at string) bool {
	for c := range m.order {
		if c.key.Kind == "Pod" &&
			identity.Place(c.origin, types.NamespacedName{Namespace: c.key.Namespace, Name: c.key.Name}) == at {
			return true
		}
	}
	return false
}

func (m *merge) flush() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.static.Flush(); err != nil {
		m.log.Warn("keep who the pods of manifests are", "err", err)
	}
}

func (m *merge) claims() []claim[*pod.Pod] {
	var all []claim[*pod.Pod]
	for origin, o := range m.origins {
		for i, p := range o.pods {
			all = append(all, claim[*pod.Pod]{p, m.order[claimed{origin, podKey(p.Key())}], i})
		}
	}
	for i, p := range m.cluster.Pods() {
		all = append(all, claim[*pod.Pod]{p, math.MaxUint64, i})
	}
	return all
}

// settleProblems brings the table of problems to the given ones and returns the new ones.
func (m *merge) settleProblems(problems []Problem, at time.Time) []Problem {
	wanted := map[ProblemKey]bool{}
	var told []Problem
	for _, p := range problems {
		key := p.key()
		wanted[key] = true
		if _, known := m.problems.Get(key); known {
			continue
		}
		p.Since = at
		m.problems.Put(key, p)
		told = append(told, p)
	}
	for key, p := range m.problems.Snapshot().All() {
		if !wanted[key] {
			m.problems.Delete(key)
			m.log.Info("manifest problem is over", "origin", p.Origin)
		}
	}
	slices.SortFunc(told, func(a, b Problem) int { return a.compare(b) })
	return told
}
