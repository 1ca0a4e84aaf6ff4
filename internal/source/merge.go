package source

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/pod"
	"github.com/berth-run/berth/internal/store"
)

// merge joins what the sources want into the two tables, whose only writer it
// is. Sources call it from their own goroutines.
type merge struct {
	desired  *store.Table[types.UID, *pod.Pod]
	problems *store.Table[ProblemKey, Problem]
	report   reporter
	log      *slog.Logger

	mu      sync.Mutex
	origins map[string]offer
	order   map[claimed]uint64
	last    uint64
}

// offer is what one origin wants and cannot give.
type offer struct {
	pods     []*pod.Pod
	problems []Problem
}

// claimed is a name wanted by an origin.
type claimed struct {
	origin string
	name   types.NamespacedName
}

func newMerge(o Options) *merge {
	return &merge{
		desired:  store.New[types.UID, *pod.Pod](),
		problems: store.New[ProblemKey, Problem](),
		report:   o.Report,
		log:      o.Log,
		origins:  map[string]offer{},
		order:    map[claimed]uint64{},
	}
}

// put replaces what an origin wants. The pods are the merge's from then on; at
// is when the origin was found changed.
func (m *merge) put(origin string, pods []*pod.Pod, problems []Problem, at time.Time) {
	m.mu.Lock()
	was := m.origins[origin].pods
	adopted := make([]*pod.Pod, len(pods))
	for i, p := range pods {
		adopted[i] = adopt(was, p, at)
	}
	m.origins[origin] = offer{pods: adopted, problems: problems}
	m.settle(origin, at)
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
	winners, problems := resolve(m.claims())
	for _, o := range m.origins {
		problems = append(problems, o.problems...)
	}
	wanted := map[types.UID]bool{}
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
		m.log.Warn("manifest not taken", "origin", p.Origin, "pod", p.Pod, "err", p.Err)
		m.report.SourceProblem(p)
	}
}

// number gives each name that an origin now wants its place, and takes it from
// those that it does not want any more.
func (m *merge) number(origin string) {
	wants := map[claimed]bool{}
	for _, p := range m.origins[origin].pods {
		c := claimed{origin, p.Key()}
		wants[c] = true
		if m.order[c] == 0 {
			m.last++
			m.order[c] = m.last
		}
	}
	for c := range m.order {
		if c.origin == origin && !wants[c] {
			delete(m.order, c)
		}
	}
}

func (m *merge) claims() []claim {
	var all []claim
	for origin, o := range m.origins {
		for i, p := range o.pods {
			all = append(all, claim{pod: p, order: m.order[claimed{origin, p.Key()}], index: i})
		}
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
			m.log.Info("manifest problem is over", "origin", p.Origin, "pod", p.Pod)
		}
	}
	slices.SortFunc(told, func(a, b Problem) int { return a.compare(b) })
	return told
}
