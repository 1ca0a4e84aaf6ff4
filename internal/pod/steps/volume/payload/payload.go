package payload

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/steps/volume"
)

// Objects are the values that volumes are made of. What is not there is an
// *object.Missing.
type Objects interface {
	ConfigMap(namespace, name string) (*corev1.ConfigMap, error)
	Secret(namespace, name string) (*corev1.Secret, error)
}

// Content is what a volume is to hold.
type Content struct {
	Files Files
	// Until is when it is to be made anew although no object has changed; zero
	// for never.
	Until time.Time
}

// Source says what is in volumes of one kind.
type Source interface {
	// Dir is the kind's directory, as in volume.Kind.
	Dir() string
	// Serves says whether the volume is of this kind.
	Serves(v *corev1.Volume) bool
	// Uses are the objects that the volume names, there or not.
	Uses(p *corev1.Pod, v *corev1.Volume) []object.Key
	// Content is what the volume is to hold now. What has to come first is an
	// *object.Missing, *object.Unknown or *object.Lacking, or Lacks of them; what
	// cannot be had now is a *Later.
	Content(ctx context.Context, o Objects, p *corev1.Pod, v *corev1.Volume) (Content, error)
}

// backing makes the directory that a volume's files are in.
type backing interface {
	Publish(ctx context.Context, r volume.Request) (path string, err error)
	Unpublish(ctx context.Context, target string) error
}

type table interface {
	Objects
	Watch() *store.Watcher[object.Key, runtime.Object]
}

type events interface {
	Event(ref corev1.ObjectReference, eventType, reason, format string, args ...any)
}

// Config of Volumes. All fields are required.
type Config struct {
	Objects table
	// Synced is closed when Objects has held everything once: before, what is
	// not there may be about to come.
	Synced <-chan struct{}
	// EmptyDir makes the directories, on disk or in memory.
	EmptyDir backing
	Events   events
	Log      *slog.Logger
}

// Volumes are the payload volumes of the node, of all kinds.
type Volumes struct {
	cfg  Config
	kick chan struct{} // when something is due has changed

	mu      sync.Mutex
	mounted map[string]*mount // by target
	changed map[object.Key]bool
}

// mount is one volume of one pod.
type mount struct {
	source Source
	medium corev1.StorageMedium
	target string

	// Guarded by Volumes.mu:
	uses []object.Key
	due  time.Time // of the next look

	mu        sync.Mutex // held while it is written
	request   volume.Request
	published bool
	// pinned are immutable objects that the files were made of: as in
	// Kubernetes, others of their name are for other pods.
	pinned   map[object.Key]runtime.Object
	told     string // the last trouble
	failures int
}

// New makes a Volumes. It looks at nothing.
func New(c Config) *Volumes {
	return &Volumes{cfg: c, kick: make(chan struct{}, 1), mounted: map[string]*mount{}, changed: map[object.Key]bool{}}
}

// Disk makes a kind of volume of a source, with its files on disk.
func (v *Volumes) Disk(s Source) volume.Kind { return kind{Source: s, volumes: v} }

// Memory makes a kind of volume of a source whose files are never on a disk.
func (v *Volumes) Memory(s Source) volume.Kind {
	return kind{Source: s, volumes: v, medium: corev1.StorageMediumMemory}
}

// Changed has the volumes of these objects made anew. The table of objects shows
// its own changes: this is for what it does not have, such as that the API server
// has told that an object is not there.
func (v *Volumes) Changed(keys map[object.Key]bool) {
	v.mu.Lock()
	maps.Copy(v.changed, keys)
	v.mu.Unlock()
	v.look()
}

// look has Run see what there is to do.
func (v *Volumes) look() {
	select {
	case v.kick <- struct{}{}:
	default:
	}
}

// kind is a volume.Kind.
type kind struct {
	Source
	volumes *Volumes
	medium  corev1.StorageMedium
}

// Features says that containers only read the volume. Its fsGroup is set as it is
// written.
func (kind) Features(volume.Request) volume.Features { return volume.Features{ReadOnly: true} }

// Publish makes the volume. What is missing for it is an error that tells the
// worker what to wait for. A volume that an earlier agent made is usable as it
// is, and is brought up to date when that comes.
func (k kind) Publish(ctx context.Context, r volume.Request) (string, error) {
	return r.Target, k.volumes.publish(ctx, k.volumes.enter(k, r))
}

// Unpublish removes the volume.
func (k kind) Unpublish(ctx context.Context, target string) error {
	k.volumes.leave(target)
	return k.volumes.cfg.EmptyDir.Unpublish(ctx, target)
}

// enter notes a volume, so that no change of its objects is missed.
func (v *Volumes) enter(k kind, r volume.Request) *mount {
	v.mu.Lock()
	m := v.mounted[r.Target]
	if m == nil {
		m = &mount{source: k.Source, medium: k.medium, target: r.Target}
		v.mounted[r.Target] = m
	}
	m.uses = k.Uses(r.Pod, r.Volume)
	v.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.request = r
	return m
}

// leave forgets a volume. When it returns nothing is written to it any more.
func (v *Volumes) leave(target string) {
	v.mu.Lock()
	m := v.mounted[target]
	delete(v.mounted, target)
	v.mu.Unlock()
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.published = false
}
