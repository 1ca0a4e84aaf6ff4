package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/source/content"
	"github.com/berth-run/berth/internal/pod/source/manifest"
)

// Errors of Local, for errors.Is.
var (
	// ErrNotFound says that the pod does not exist.
	ErrNotFound = errors.New("not found")
	// ErrTaken says that the name belongs to a pod that this call may not change.
	ErrTaken = errors.New("name is taken")
)

// Origins of local pods.
const (
	originApply = "berth apply"
	originRun   = "berth run"
	// originLocal is the origin of all local pods in the merge.
	originLocal = "local"
)

// Result is the effect of applying a pod or object.
type Result string

// Results of applying a pod or object.
const (
	Created    Result = "created"
	Unchanged  Result = "unchanged"
	Configured Result = "configured" // the spec changed, the UID stays
	Replaced   Result = "replaced"   // a pod with another UID takes its place
)

// Applied is a pod or another object that was applied, in its completed form.
type Applied struct {
	Pod    *pod.Pod
	Object object.Value
	Result Result
}

// Local holds the pods and objects received over the agent's API. Those of "berth apply" are stored on disk, one file
// each, before they count, so that they survive a restart. Those of a foreground "berth run" are not stored.
type Local struct {
	node   string
	merge  *merge
	disk   *checkpoint.Dir[record]
	log    *slog.Logger
	loaded chan struct{}

	mu   sync.Mutex
	pods map[types.NamespacedName]*pod.Pod
	localObjects
	// damaged are records that cannot be read, by key. broken are records, by name, that are invalid. Both are problems
	// of originLocal.
	damaged map[string]Problem
	broken  map[types.NamespacedName]Problem
}

// record is the stored form of a pod, version 1.
type record struct {
	Seen time.Time   `json:"seen"`
	Pod  *corev1.Pod `json:"pod"`
}

func newLocal(o Options, m *merge) *Local {
	return &Local{
		node:         o.NodeName,
		merge:        m,
		disk:         checkpoint.NewDir[record](o.Applied, checkpoint.Format{Version: 1}),
		log:          o.Log,
		loaded:       make(chan struct{}),
		pods:         map[types.NamespacedName]*pod.Pod{},
		localObjects: newLocalObjects(o.Applied),
		broken:       map[types.NamespacedName]Problem{},
	}
}

// load reads the stored pods. A damaged or invalid record is a problem and not an error.
func (l *Local) load(now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	records, err := l.disk.LoadAll()
	if l.damaged, err = damagedRecords(l.disk, err); err != nil {
		return err
	}
	for key, r := range records {
		p, err := l.restore(r)
		if err != nil {
			l.broken[content.ParseName(key)] = Problem{Origin: originApply, Pod: content.ParseName(key), Err: err}
			continue
		}
		l.pods[p.Key()] = p
	}
	if err := l.loadObjects(); err != nil {
		return err
	}
	l.pass(now)
	close(l.loaded)
	return nil
}

// damagedRecords returns the problems of the records that cannot be read, by key. They include the records that an
// earlier agent moved aside, so that a restart does not forget them. err is the error of LoadAll.
func damagedRecords[T any](disk *checkpoint.Dir[T], err error) (map[string]Problem, error) {
	now, err := checkpoint.Damaged(err)
	if err != nil {
		return nil, err
	}
	all := map[string]Problem{}
	for _, err := range now {
		if d, ok := errors.AsType[*checkpoint.DamagedError](err); ok && d.Moved == "" {
			all[d.Path] = Problem{Origin: originApply, Err: err}
		}
	}
	aside, err := disk.SetAside()
	for key, damaged := range aside {
		all[key] = Problem{Origin: originApply, Err: damaged}
	}
	return all, err
}

func (l *Local) restore(r record) (*pod.Pod, error) {
	if r.Pod == nil || r.Pod.UID == "" {
		return nil, errors.New("restore applied pod: the record has no pod with a UID; next: apply it again")
	}
	r.Pod.Spec.NodeName = l.node // the node may have been renamed
	manifest.Default(r.Pod)
	r.Pod.Status.Phase = corev1.PodPending
	if err := manifest.Invalid(manifest.Validate(r.Pod)); err != nil {
		return nil,
			reason.New(reason.FailedValidation, "restore applied pod %s: %w; next: apply it again", pod.FullName(r.Pod),
				err)
	}
	return &pod.Pod{Pod: r.Pod, Source: pod.SourceLocal, Origin: originApply, Seen: r.Seen}, nil
}

// Apply stores the objects and makes them wanted. An unchanged manifest has no effect. If only fields changed that may
// change in a running pod, the pod keeps its UID; otherwise a pod with a new UID replaces it. The objects must not be
// used afterwards.
//
// If one of the objects is invalid, nothing is applied. If a save fails midway, Apply returns the objects applied until
// then together with the error.
func (l *Local) Apply(ctx context.Context, objects ...manifest.Object) ([]Applied, error) {
	return l.apply(ctx, objects, originApply)
}

// Run makes the objects wanted until they are deleted or the agent ends. A name that is in use is an error, even for
// the same manifest.
func (l *Local) Run(ctx context.Context, objects ...manifest.Object) ([]Applied, error) {
	return l.apply(ctx, objects, originRun)
}

// Check returns the result that Apply would have, or why it would fail. It changes nothing.
func (l *Local) Check(ctx context.Context, objects ...manifest.Object) ([]Applied, error) {
	if err := l.ready(ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.check(objects, originApply, time.Now())
}

// ready waits until the stored pods have been loaded.
func (l *Local) ready(ctx context.Context) error {
	select {
	case <-l.loaded:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Local) apply(ctx context.Context, objects []manifest.Object, origin string) ([]Applied, error) {
	if err := l.ready(ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	wanted, err := l.check(objects, origin, now)
	if err != nil {
		return nil, err
	}
	defer func() { l.pass(now) }()
	for i, a := range wanted {
		if a.Object != nil {
			err = l.putObject(&content.Item{Value: a.Object, Origin: origin, Ephemeral: origin == originRun}, a.Result)
		} else {
			err = l.putPod(a, origin)
		}
		if err != nil {
			return wanted[:i], err
		}
	}
	return wanted, nil
}

func (l *Local) putPod(a Applied, origin string) error {
	key := a.Pod.Key()
	if a.Result != Unchanged && origin == originApply {
		if err := l.disk.Save(key.String(), record{Seen: a.Pod.Seen, Pod: a.Pod.Pod}); err != nil {
			return fmt.Errorf("save pod %s: %w", key, err)
		}
	}
	l.pods[key] = a.Pod
	delete(l.broken, key)
	delete(l.damaged, key.String())
	return nil
}

// check completes all objects. It returns the effect of applying each, or why one cannot be applied.
func (l *Local) check(objects []manifest.Object, origin string, now time.Time) ([]Applied, error) {
	var wanted []Applied
	var errs []error
	names := map[object.Key]bool{}
	for _, o := range objects {
		a, err := l.checkOne(o, origin, now)
		if key := o.Key(); err == nil && names[key] {
			err = content.Invalid(o,
				fmt.Errorf("the manifest already has a %s %s/%s", strings.ToLower(key.Kind), key.Namespace, key.Name))
		}
		names[o.Key()] = true
		wanted, errs = append(wanted, a), append(errs, err)
	}
	return wanted, errors.Join(errs...)
}

func (l *Local) checkOne(o manifest.Object, origin string, now time.Time) (Applied, error) {
	if o.Value != nil {
		return l.checkObject(o, origin, now)
	}
	p, err := content.Local(o, l.node)
	if err != nil {
		return Applied{}, err
	}
	p.Origin, p.Ephemeral = origin, origin == originRun
	if err := l.taken(p); err != nil {
		return Applied{}, err
	}
	return l.decide(p, now), nil
}

// taken returns an error if the name or the UID belongs to another pod.
func (l *Local) taken(p *pod.Pod) error {
	if other, ok := l.merge.owner(p.Key()); ok && other.Source != pod.SourceLocal {
		return fmt.Errorf("pod %s already comes from %s: %w", p.Key(), other.Origin, ErrTaken)
	}
	if other, ok := l.merge.desired.Get(p.UID); ok && p.UID != "" && other.Key() != p.Key() {
		return fmt.Errorf("pod %s has the UID of pod %s, remove metadata.uid: %w", p.Key(), other.Key(), ErrTaken)
	}
	if was := l.pods[p.Key()]; was != nil && (was.Ephemeral || p.Ephemeral) {
		return fmt.Errorf("pod %s exists already (%s), delete it first or choose another name: %w", p.Key(),
			was.Origin, ErrTaken)
	}
	return nil
}

// decide gives a pod its UID and returns the effect on the existing pod of its name.
func (l *Local) decide(p *pod.Pod, now time.Time) Applied {
	was := l.pods[p.Key()]
	a := Applied{Pod: p, Result: Created}
	if was != nil {
		given := p.UID != ""
		switch {
		case was.Annotations[pod.AnnotationConfigHash] == p.Annotations[pod.AnnotationConfigHash]:
			return Applied{Pod: was, Result: Unchanged}
		case given && p.UID == was.UID, !given && inPlace(was.Pod, p.Pod):
			a.Result = Configured
			p.UID, p.CreationTimestamp, p.Seen = was.UID, was.CreationTimestamp, was.Seen
			takeEphemeral(was.Pod, p.Pod)
			return a
		}
		a.Result = Replaced
	}
	if p.UID == "" {
		p.UID = uuid.NewUUID()
	}
	p.CreationTimestamp, p.Seen = metav1.NewTime(now).Rfc3339Copy(), now
	return a
}

// Pod returns a local pod, or nil.
func (l *Local) Pod(ctx context.Context, name types.NamespacedName) (*pod.Pod, error) {
	if err := l.ready(ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pods[name], nil
}

// Delete makes a local pod unwanted, on disk first. The caller sets a pod.Stop before, which says how the pod ends. The
// returned pod is nil if only an invalid record was removed. The error is ErrNotFound, or ErrTaken for a pod of a file
// or URL.
func (l *Local) Delete(ctx context.Context, name types.NamespacedName) (*pod.Pod, error) {
	if err := l.ready(ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pods[name]
	_, broken := l.broken[name]
	_, damaged := l.damaged[name.String()]
	if p == nil && !broken && !damaged {
		if other, ok := l.merge.owner(name); ok {
			return nil, fmt.Errorf("pod %s comes from %s, remove it there: %w", name, other.Origin, ErrTaken)
		}
		return nil, fmt.Errorf("pod %s: %w", name, ErrNotFound)
	}
	if p == nil || !p.Ephemeral {
		if err := l.disk.Delete(name.String()); err != nil {
			return nil, fmt.Errorf("delete pod %s: %w", name, err)
		}
	}
	if err := l.disk.Discard(name.String()); err != nil {
		return nil, fmt.Errorf("delete pod %s: %w", name, err)
	}
	delete(l.pods, name)
	delete(l.broken, name)
	delete(l.damaged, name.String())
	l.pass(time.Now())
	return p, nil
}

// pass gives all local pods to the merge, oldest first.
func (l *Local) pass(now time.Time) {
	pods := slices.SortedFunc(maps.Values(l.pods), func(a, b *pod.Pod) int {
		return cmp.Or(a.Seen.Compare(b.Seen), cmp.Compare(a.Key().String(), b.Key().String()))
	})
	problems := slices.Collect(maps.Values(l.broken))
	problems = slices.AppendSeq(problems, maps.Values(l.damaged))
	problems = slices.AppendSeq(problems, maps.Values(l.damagedObjects))
	l.merge.Put(originLocal, content.Wanted{Pods: pods, Objects: l.items()}, problems, now)
}
