package mirror

import (
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/pod"
)

// Options of Mirrors.
type Options struct {
	Client   kubernetes.Interface
	NodeName string
	// Nodes has the Node object, by name, once it was received. It owns the mirror pods. Before that none is created.
	Nodes *store.Table[string, *corev1.Node]
	// Desired and Mirrors are the tables of package source. Synced is closed when they are complete.
	Desired *store.Table[types.UID, *pod.Pod]
	Mirrors *store.Table[types.NamespacedName, *corev1.Pod]
	Synced  <-chan struct{}
	// Stale collects the static pods whose mirror pod was created, deleted or replaced, or has another status.
	Stale Stale
	Now   func() time.Time
	Log   *slog.Logger
}

// Stale is the set of pods whose published status is out of date.
type Stale interface {
	Mark(uid types.UID)
}

// Mirrors keeps the mirror pods of this node.
type Mirrors struct {
	opts    Options
	results chan result

	// Only Run uses these.
	statics map[types.NamespacedName]*pod.Pod
	tries   map[types.NamespacedName]*try
	shown   map[types.UID]*corev1.Pod // the mirror pod of each static pod, as of the last call of Stale.Mark
}

// New returns Mirrors. It does nothing before Run.
func New(o Options) *Mirrors {
	return &Mirrors{
		opts: o, results: make(chan result),
		statics: map[types.NamespacedName]*pod.Pod{}, tries: map[types.NamespacedName]*try{},
		shown: map[types.UID]*corev1.Pod{},
	}
}

// Mirror returns the mirror pod of a static pod, as the API server has it. It returns false if the pod is not static
// or has no mirror pod now. It may be called from any goroutine.
func (m *Mirrors) Mirror(uid types.UID) (*corev1.Pod, bool) {
	static, ok := m.opts.Desired.Get(uid)
	if !ok || !mirrorable(static) {
		return nil, false
	}
	mirror, ok := m.opts.Mirrors.Get(static.Key())
	if !ok || mirror.DeletionTimestamp != nil || !of(static, mirror) {
		return nil, false
	}
	return mirror, true
}
