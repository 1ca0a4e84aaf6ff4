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

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/source/cluster"
	"github.com/berth-run/berth/internal/pod/source/content"
	"github.com/berth-run/berth/internal/pod/source/identity"
)

// merge resolves what the sources want into the tables. It is their only writer. Sources call it from their own
// goroutines.
type merge struct {
	desired  *store.Table[types.UID, *pod.Pod]
	objects  *object.Table
	problems *store.Table[ProblemKey, Problem]
	report   reporter
	log      *slog.Logger
	node     Node
	nodeName string
	ignored  pod.Ignored

	mu      sync.Mutex
	origins map[string]offer
	cluster *cluster.Set
	order   map[claimed]uint64
	last    uint64
	static  *identity.Identities
	classes map[types.UID]classed
	changed wake.Signal // wakes keepIdentities
	// listed are the directories that were read completely.
	listed         map[string]object.Directory
	originsChanged wake.Signal // wakes the reader of Sources.OriginsChanged
	// answered says that MayWant has answered true since readable was woken. readable wakes the reader of WantsChanged.
	answered bool
	readable wake.Signal
}

// offer holds what one origin wants, and its problems.
type offer struct {
	// base are the pods as the origin gave them. pods are the same with their identities and times.
	base, pods []*pod.Pod
	objects    []*content.Item
	problems   []Problem
	// refused are changes of immutable objects.
	refused []Problem
	dir     object.Directory // of a file
	faulty  bool             // it has faults, perhaps not reported yet
}

// claimed identifies a name that an origin wants.
type claimed struct {
	origin string
	key    object.Key
}

func podKey(name types.NamespacedName) object.Key {
	return object.Key{Kind: "Pod", Namespace: name.Namespace, Name: name.Name}
}

func newMerge(o Options) *merge {
	static := identity.New(o.Identities)
	static.Running = o.Running
	return &merge{
		desired:        store.New[types.UID, *pod.Pod](),
		objects:        store.New[object.Key, runtime.Object](),
		problems:       store.New[ProblemKey, Problem](),
		report:         o.Report,
		log:            o.Log,
		node:           o.Node,
		nodeName:       o.NodeName,
		origins:        map[string]offer{},
		ignored:        o.Ignored,
		cluster:        cluster.New(o.NodeName, o.Ignored),
		order:          map[claimed]uint64{},
		classes:        map[types.UID]classed{},
		static:         static,
		changed:        wake.New(),
		listed:         map[string]object.Directory{},
		originsChanged: wake.New(),
		readable:       wake.New(),
	}
}

// Put replaces what an origin wants. The caller must not use w afterwards. at is when the origin's change was noticed.
func (m *merge) Put(origin string, w content.Wanted, problems []Problem, at time.Time) {
	m.mu.Lock()
	m.replace(origin, w.Pods, at)
	o := m.origins[origin]
	o.problems, o.dir, o.faulty = problems, w.Dir, w.Faulty
	m.replaceObjects(&o, w.Objects, at)
	m.origins[origin] = o
	m.settle(origin, at)
}

// replace sets the pods that an origin wants. The caller holds m.mu.
func (m *merge) replace(origin string, pods []*pod.Pod, at time.Time) {
	o := m.origins[origin]
	adopted := make([]*pod.Pod, len(pods))
	for i, p := range pods {
		if kept := m.ignored.Without(p.Pod); kept != p.Pod {
			c := *p
			c.Pod, p = kept, &c
		}
		if p.Source != pod.SourceLocal {
			p = m.static.Identify(origin, p)
		}
		adopted[i] = adopt(o.pods, p, at)
	}
	o.base, o.pods = pods, adopted
	m.origins[origin] = o
}

// Drop removes an origin.
func (m *merge) Drop(origin string, at time.Time) {
	m.mu.Lock()
	delete(m.origins, origin)
	m.settle(origin, at)
}

// owner returns the desired pod of this name.
func (m *merge) owner(name types.NamespacedName) (*pod.Pod, bool) {
	for _, p := range m.desired.Snapshot().All() {
		if p.Key() == name {
			return p, true
		}
	}
	return nil, false
}

// adopt gives p the time when its origin first had a pod of this UID. If nothing else has changed, it returns the
// earlier value, otherwise p.
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
	content.Annotate(p.Pod, pod.AnnotationConfigSeen, seen.Format(time.RFC3339Nano))
}

// settle updates the tables to what the origins want, and unlocks m.mu. Pods are removed before new ones are added,
// because a new pod may have the name of an old one.
func (m *merge) settle(origin string, at time.Time) {
	m.number(origin)
	m.forget(origin)
	objectProblems := m.settleObjects() // first, so that new pods find their objects
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
	added, resolved := m.settleProblems(problems, at)
	answered := m.answered
	m.answered = false
	m.mu.Unlock()
	m.originsChanged.Wake()
	if answered {
		m.readable.Wake()
	}
	for _, p := range added {
		if p.Ignored {
			m.log.Warn("manifest has fields that are ignored, using the others", p.Attrs()...)
		} else {
			m.log.Warn("manifest has a problem, ignored", p.Attrs()...)
		}
		m.report.SourceProblem(p)
	}
	for _, p := range resolved {
		m.report.SourceResolved(p)
	}
}

// number gives each name that an origin newly wants its place in the order of claims. It removes the places of names
// that the origin does not want any more.
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
		want(i.Key())
	}
	for c := range m.order {
		if c.origin == origin && !wants[c] {
			delete(m.order, c)
		}
	}
}

// forget removes the identities of pods that an origin does not want any more. It keeps them while the origin has
// problems, because its content is unknown then.
func (m *merge) forget(origin string) {
	if origin == originLocal || content.Faulty(m.origins[origin].problems) {
		return
	}
	m.static.Retain(func(at string) bool {
		name, mine := strings.CutPrefix(at, origin+" ")
		return !mine || m.order[claimed{origin, podKey(content.ParseName(name))}] != 0
	})
	if m.static.Dirty() {
		m.changed.Wake()
	}
}

// saveDelay is how long changes of identities are collected before they are written.
const saveDelay = 200 * time.Millisecond

// keepIdentities writes changed identities to disk, and once more when ctx ends. After all sources were read, it
// removes the identities of manifests that are gone.
func (m *merge) keepIdentities(ctx context.Context, synced <-chan struct{}) error {
	var retaining sync.WaitGroup
	defer retaining.Wait()
	retaining.Go(func() {
		select {
		case <-synced:
			m.mu.Lock()
			m.static.Running = nil
			m.static.Retain(m.isPlace)
			if m.static.Dirty() {
				m.changed.Wake()
			}
			m.mu.Unlock()
		case <-ctx.Done():
		}
	})
	return checkpoint.SaveLater(ctx, m.changed.C(), checkpoint.Delay{Before: saveDelay}, m.flush)
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
		m.log.Warn("save the identities of static pods failed, retrying after the next change", "err", err)
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

// settleProblems updates the table of problems and returns the new ones and the resolved ones.
func (m *merge) settleProblems(problems []Problem, at time.Time) (added, resolved []Problem) {
	wanted := map[ProblemKey]bool{}
	for _, p := range problems {
		key := p.Key()
		wanted[key] = true
		if _, known := m.problems.Get(key); known {
			continue
		}
		p.Since = at
		m.problems.Put(key, p)
		added = append(added, p)
	}
	for key, p := range m.problems.Snapshot().All() {
		if !wanted[key] {
			m.problems.Delete(key)
			m.log.Info("manifest problem resolved", "origin", p.Origin)
			resolved = append(resolved, p)
		}
	}
	slices.SortFunc(added, func(a, b Problem) int { return a.Compare(b) })
	return added, resolved
}
