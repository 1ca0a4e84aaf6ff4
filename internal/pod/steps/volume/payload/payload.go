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
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/record/event"
)

// Objects reads the objects that volumes are made of. The error for an object that does not exist is an
// *object.Missing.
type Objects interface {
	ConfigMap(namespace, name string) (*corev1.ConfigMap, error)
	Secret(namespace, name string) (*corev1.Secret, error)
}

// Content is the content that a volume must have.
type Content struct {
	Files Files
	// Until is when the content must be made again although no object has changed; zero is never.
	Until time.Time
}

// Source decides the content of one kind of volume.
type Source interface {
	// Dir is the name of the kind's directory, as in volume.Kind.
	Dir() string
	// Serves reports whether the volume is of this kind.
	Serves(v *corev1.Volume) bool
	// Uses returns the objects that the volume names, whether they exist or not.
	Uses(p *corev1.Pod, v *corev1.Volume) []object.Key
	// Content returns the content that the volume must have now. If an object must appear or change first, the error is
	// an *object.Missing, *object.Unknown or *object.Lacking, or Lacks of these. For content that is temporarily
	// unavailable it is an *Unavailable.
	Content(ctx context.Context, o Objects, p *corev1.Pod, v *corev1.Volume) (Content, error)
}

// backing makes and removes the directory that contains a volume's files.
type backing interface {
	Publish(ctx context.Context, r volume.Request) (path string, err error)
	Unpublish(ctx context.Context, target string) error
}

type table interface {
	Objects
	Watch() *store.Watcher[object.Key, runtime.Object]
}

// Config of Volumes. All fields are required.
type Config struct {
	Objects table
	// Synced is closed once Objects has everything. Before that, an object that is not found may still appear.
	Synced <-chan struct{}
	// EmptyDir makes the directories, on disk or in memory.
	EmptyDir backing
	Events   event.Sink
	Log      *slog.Logger
}

// Volumes are the payload volumes of all pods and kinds.
type Volumes struct {
	cfg Config
	due wake.Signal // mount.due or changed has changed

	mu      sync.Mutex
	mounted map[string]*mount // by target
	changed map[object.Key]bool
}

// mount is one volume of one pod.
type mount struct {
	source Source
	medium corev1.StorageMedium
	target string

	// Guarded by Volumes.mu. due is the time of the next update; zero is none.
	uses []object.Key
	due  time.Time

	mu        sync.Mutex // held while it is written
	request   volume.Request
	published bool
	// pinned are the immutable objects that the files were made of. As in Kubernetes, a new object of the same name is
	// only for other pods.
	pinned   map[object.Key]runtime.Object
	reported string // the text of the last warning
	failures int
}

// New makes a Volumes. It does no I/O.
func New(c Config) *Volumes {
	return &Volumes{cfg: c, due: wake.New(), mounted: map[string]*mount{}, changed: map[object.Key]bool{}}
}

// Disk makes a kind of volume from a source. Its files are on disk.
func (v *Volumes) Disk(s Source) volume.Kind { return kind{Source: s, volumes: v} }

// Memory makes a kind of volume from a source. Its files are only in memory.
func (v *Volumes) Memory(s Source) volume.Kind {
	return kind{Source: s, volumes: v, medium: corev1.StorageMediumMemory}
}

// Changed updates the volumes that use these objects. Run watches the table of objects by itself. Changed is for news
// that the table does not have, such as that the API server has no such object.
func (v *Volumes) Changed(keys map[object.Key]bool) {
	v.mu.Lock()
	maps.Copy(v.changed, keys)
	v.mu.Unlock()
	v.due.Wake()
}

// kind is the volume.Kind of one source.
type kind struct {
	Source
	volumes *Volumes
	medium  corev1.StorageMedium
}

// Features says that containers only read the volume. The volume's fsGroup is set when its files are written.
func (kind) Features(volume.Request) volume.Features { return volume.Features{ReadOnly: true} }

// Publish makes the volume. Its error names the objects to wait for. A volume that an earlier agent made is used as it
// is while something is missing, and updated when that appears.
func (k kind) Publish(ctx context.Context, r volume.Request) (string, error) {
	return r.Target, k.volumes.publish(ctx, k.volumes.add(k, r))
}

// Unpublish removes the volume.
func (k kind) Unpublish(ctx context.Context, target string) error {
	k.volumes.remove(target)
	return k.volumes.cfg.EmptyDir.Unpublish(ctx, target)
}

// add records a volume before it is made, so that no change of its objects is missed.
func (v *Volumes) add(k kind, r volume.Request) *mount {
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

// remove deletes the record of a volume. After it returns, nothing is written to the volume any more.
func (v *Volumes) remove(target string) {
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
