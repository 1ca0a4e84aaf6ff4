package source

import (
	"context"
	"log/slog"
	"maps"
	"slices"
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
	// troubled are the origins with problems.
	troubled map[string]bool
	claims   claims
	static   *identity.Identities
	// classes are the winners that have a RuntimeClass, by UID.
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
		troubled:       map[string]bool{},
		claims:         newClaims(o.NodeName, o.Ignored),
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
	if delete(m.troubled, origin); len(o.problems)+len(o.refused) > 0 {
		m.troubled[origin] = true
	}
	m.settleOrigin(origin, at)
}

// replace sets the pods that an origin wants. The caller holds m.mu.
func (m *merge) replace(origin string, pods []*pod.Pod, at time.Time) {
	o := m.origins[origin]
	was := make(map[types.UID]*pod.Pod, len(o.pods))
	for _, p := range slices.Backward(o.pods) { // of two with one UID, the first counts
		was[p.UID] = p
	}
	adopted := make([]*pod.Pod, len(pods))
	for i, p := range pods {
		if kept := m.ignored.Without(p.Pod); kept != p.Pod {
			c := *p
			c.Pod, p = kept, &c
		}
		if p.Source != pod.SourceLocal {
			p = m.static.Identify(origin, p)
		}
		adopted[i] = adopt(was[p.UID], p, at)
	}
	o.base, o.pods = pods, adopted
	m.origins[origin] = o
}

// Drop removes an origin.
func (m *merge) Drop(origin string, at time.Time) {
	m.mu.Lock()
	delete(m.origins, origin)
	delete(m.troubled, origin)
	m.settleOrigin(origin, at)
}

// owner returns the desired pod of this name.
func (m *merge) owner(name types.NamespacedName) (*pod.Pod, bool) {
	if found := m.desired.Where(func(p *pod.Pod) bool { return p.Key() == name }); len(found) > 0 {
		return found[0], true
	}
	return nil, false
}

// adopt gives p the time when its origin first had a pod of this UID. was is the origin's pod of this UID until now, or
// nil. If nothing else has changed, adopt returns it, otherwise p.
func adopt(was, p *pod.Pod, at time.Time) *pod.Pod {
	switch was {
	case nil:
		if p.Seen.IsZero() {
			p.Seen = at
		}
		stamp(p, p.Seen)
		return p
	case p:
		return was
	}
	stamp(p, was.Seen)
	if same(was, p) {
		return was
	}
	return p
}

func stamp(p *pod.Pod, seen time.Time) {
	p.Seen = seen
	content.Annotate(p.Pod, pod.AnnotationConfigSeen, seen.Format(time.RFC3339Nano))
}

// settleOrigin updates the tables after a change of what an origin wants, and unlocks m.mu.
func (m *merge) settleOrigin(origin string, at time.Time) {
	o := m.origins[origin]
	for _, i := range m.claims.putObjects(origin, o.objects) { // first, so that new pods find their objects
		m.settleObject(i.Key())
	}
	m.settle(origin, m.claims.putPods(origin, o.pods), at)
}

// settleCluster updates the tables after a change of the cluster's pods or objects, and unlocks m.mu.
func (m *merge) settleCluster(at time.Time) { m.settle(cluster.Origin, m.claims.putCluster(), at) }

// settle updates the tables after a change of an origin that touched some pods, and unlocks m.mu. It looks only at what
// the change concerns, so that a pod costs the same beside few pods and beside many.
func (m *merge) settle(origin string, touched []*pod.Pod, at time.Time) {
	m.settlePods(touched)
	m.forget(origin)
	problems := m.claims.problems()
	for name := range m.troubled {
		o := m.origins[name]
		problems = append(append(problems, o.problems...), o.refused...)
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

// settlePods updates the table of pods after a change that touched some of them. Pods are removed before new ones are
// added, because a new pod may have the name of an old one.
func (m *merge) settlePods(touched []*pod.Pod) {
	uids := slices.Sorted(maps.Keys(m.classes)) // a RuntimeClass may have changed
	for _, p := range touched {
		uids = append(uids, p.UID)
	}
	var wanted []*pod.Pod
	for _, uid := range uids {
		if p, _, ok := m.claims.pods.Winner(slot{uid: uid}); ok {
			wanted = append(wanted, p)
		} else {
			delete(m.classes, uid)
			m.desired.Delete(uid)
		}
	}
	for _, p := range wanted {
		p = m.classify(p)
		if old, ok := m.desired.Get(p.UID); !ok || old != p {
			m.desired.Put(p.UID, p)
		}
	}
}

// forget removes the identities of pods that an origin does not want any more. It keeps them while the origin has
// problems, because its content is unknown then.
func (m *merge) forget(origin string) {
	if origin == originLocal || content.Faulty(m.origins[origin].problems) {
		return
	}
	m.static.Retain(origin, func(name string) bool { return m.claims.wants(origin, name) })
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
			m.static.RetainAll(m.claims.wants)
			if m.static.Dirty() {
				m.changed.Wake()
			}
			m.mu.Unlock()
		case <-ctx.Done():
		}
	})
	return checkpoint.SaveLater(ctx, m.changed.C(), checkpoint.Delay{Before: saveDelay}, m.flush)
}

func (m *merge) flush() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.static.Flush(); err != nil {
		m.log.Warn("save the identities of static pods failed, retrying after the next change", "err", err)
	}
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
