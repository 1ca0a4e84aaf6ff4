package offline

import (
	"cmp"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/cluster/token"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
)

// fleet is the set of pods that this node works on.
type fleet interface {
	// Working reports whether the node has admitted a pod.
	Working(types.UID) bool
}

// Options of an Offline.
type Options struct {
	// Root is the agent's directory.
	Root string
	// KeyFile has the key and is readable only by its owner. If it is empty, a key is made below Root.
	KeyFile string
	// All saves every admitted pod. Otherwise only pods with AnnotationAlways are saved.
	All bool
	// MaxAge is how long after the API server's last answer the saved pods may start. 0 sets no limit.
	MaxAge time.Duration

	Desired *store.Table[types.UID, *pod.Pod]
	Objects *object.Table
	Cluster Cluster
	Fleet   fleet
	Server  Server
	Tokens  Tokens
	// SetsChanged is raised when the result of Server.Sets may have changed.
	SetsChanged wake.Signal
	Now         func() time.Time
	Log         *slog.Logger
}

// Cluster knows the objects that pods name.
type Cluster interface {
	// Names lists the objects that a pod needs.
	Names(p *corev1.Pod) []object.Key
	// Received reports whether an object that is missing in Options.Objects certainly does not exist. Until then the
	// saved copy stays.
	Received(key object.Key) bool
}

// Server is the API server as this node sees it.
type Server interface {
	// Answers reports whether the API server answers and Options.Desired has all pods that it wants on this node.
	Answers() bool
	// Sets returns the objects of a pod that Options.Objects does not hold. known is false until they are certain.
	Sets(p *corev1.Pod, named []object.Value) (s Sets, known bool)
}

// Tokens holds the service account tokens of pods.
type Tokens interface {
	// Of returns the tokens of a pod, by the request of its volume.
	Of(uid types.UID) map[string]token.Token
}

// Offline saves admitted pods on disk.
type Offline struct {
	Options
	disk *checkpoint.Dir[record]
	wake wake.Signal

	mu      sync.Mutex
	key     cipher.AEAD
	written map[types.UID]written
	due     map[types.UID]bool
	current current
}

// current is the index, which is ahead of its file while unsaved is set. The files of the pods in deleted are
// removed once the index is on disk.
type current struct {
	index
	unsaved bool
	deleted map[types.UID]bool
}

// written identifies the saved state of a pod. It is zero for a file of an earlier agent, which is compared with the
// first state of the pod.
type written struct {
	stamp string
	sum   [sha256.Size]byte // of the content
}

// record is a saved pod on disk, version 2. Namespace, name and counter are not encrypted, so that people can read
// them.
type record struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Counter is higher than the counter of every earlier record.
	Counter uint64 `json:"counter"`
	// Sealed is content as JSON, encrypted with AES-256-GCM. UID and counter are the additional data.
	Sealed []byte `json:"sealed"`
}

var errOtherKey = errors.New("it was encrypted with another key")

type content struct {
	Pod     *corev1.Pod            `json:"pod"`
	Objects []typed                `json:"objects,omitempty"`
	Sets    Sets                   `json:"sets,omitzero"`
	Tokens  map[string]token.Token `json:"tokens,omitempty"`
}

type typed struct {
	Kind   string          `json:"kind"`
	Object json.RawMessage `json:"object"`
}

func format() checkpoint.Format { return checkpoint.Format{Version: 1} }

// recordFormat has no migration: only the API server knows whether a pod of version 1 is current.
func recordFormat() checkpoint.Format {
	return checkpoint.Format{Version: 2, Migrate: func(int, json.RawMessage) (json.RawMessage, error) {
		return nil, errors.New("version 1 does not record whether this copy is current")
	}}
}

// New makes an Offline. It reads nothing before Load.
func New(o Options) *Offline {
	return &Offline{
		Options: o, disk: checkpoint.NewDir[record](filepath.Join(o.Root, "offline", "pods"), recordFormat()),
		wake: wake.New(), written: map[types.UID]written{}, due: map[types.UID]bool{},
		current: current{index: index{Pods: map[types.UID]uint64{}}, deleted: map[types.UID]bool{}},
	}
}

func (o *Offline) indexFile() string { return filepath.Join(o.Root, "offline", "index") }

// Load reads the key, and the saved pods that may start while the API server does not answer, ordered by priority and
// age. With an error the list has the pods that could be read. If the key is unusable, no pods can be saved.
func (o *Offline) Load() ([]Kept, error) {
	if err := os.MkdirAll(filepath.Join(o.Root, "offline"), 0o700); err != nil {
		return nil, err
	}
	key, err := loadKey(cmp.Or(o.KeyFile, filepath.Join(o.Root, "offline", "key")), o.KeyFile == "")
	if err != nil {
		return nil, fmt.Errorf("read the key of the saved pods: %w", err)
	}
	records, err := o.disk.LoadAll()
	errs := []error{err}
	o.mu.Lock()
	o.key = key
	o.mu.Unlock()
	saved, exists, err := loadIndex(o.indexFile(), key)
	errs = append(errs, err)
	usable := exists && err == nil
	if !usable && len(records) > 0 {
		errs = append(errs, errors.New("the index of the saved pods is missing or cannot be read: none of them is "+
			"used; they are saved again when the API server answers"))
	}
	if !usable {
		// The counters of all earlier copies are below, unless the clock was set back.
		saved.Counter = uint64(o.Now().UnixNano())
	}
	o.current.index, o.current.unsaved = index{saved.Counter, saved.Confirmed, map[types.UID]uint64{}}, !usable
	var kept []Kept
	for uid, r := range records {
		uid := types.UID(uid)
		o.written[uid] = written{}
		k, err := open(key, uid, r)
		if err == nil {
			o.current.Counter = max(o.current.Counter, r.Counter)
		}
		switch {
		case err != nil:
		case !usable: // reported once for all
			o.mark(uid)
			continue
		case !saved.accepts(uid, r.Counter):
			err = errors.New("it is not the copy that was saved last, and is not used")
		default:
			o.current.Pods[uid] = r.Counter
			kept = append(kept, k)
			continue
		}
		errs = append(errs, fmt.Errorf("read saved pod %s/%s (%s): %w", r.Namespace, r.Name, uid, err))
		o.mark(uid)
	}
	slices.SortFunc(kept, func(a, b Kept) int {
		return cmp.Or(cmp.Compare(pod.Priority(b.Pod), pod.Priority(a.Pod)),
			a.Pod.CreationTimestamp.Compare(b.Pod.CreationTimestamp.Time), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	return startable(kept, saved.Confirmed, o.Now(), o.MaxAge), errors.Join(errs...)
}

// encode returns the part of a saved pod that is encrypted.
func encode(k Kept) ([]byte, error) {
	c := content{Pod: bare(k.Pod), Sets: k.Sets, Tokens: k.Tokens}
	for _, v := range k.Objects {
		data, err := json.Marshal(objectMeta(v))
		if err != nil {
			return nil, err
		}
		c.Objects = append(c.Objects, typed{object.KeyOf(v).Kind, data})
	}
	return json.Marshal(c)
}

func seal(key cipher.AEAD, p *corev1.Pod, counter uint64, plain []byte) record {
	return record{p.Namespace, p.Name, counter, key.Seal(nil, nil, plain, podData(p.UID, counter))}
}

func open(key cipher.AEAD, uid types.UID, r record) (k Kept, err error) {
	plain, err := key.Open(nil, nil, r.Sealed, podData(uid, r.Counter))
	if err != nil {
		return k, errOtherKey
	}
	var c content
	if err := json.Unmarshal(plain, &c); err != nil {
		return k, err
	}
	if c.Pod == nil || c.Pod.UID != uid {
		return k, errors.New("it contains another pod than its name says")
	}
	k = Kept{Pod: c.Pod, Sets: c.Sets, Tokens: c.Tokens}
	for _, t := range c.Objects {
		kind, ok := object.KindNamed(t.Kind)
		if !ok {
			return k, fmt.Errorf("unknown kind %q", t.Kind)
		}
		v := kind.New()
		if err := json.Unmarshal(t.Object, v); err != nil {
			return k, fmt.Errorf("%s: %w", t.Kind, err)
		}
		k.Objects = append(k.Objects, v)
	}
	return k, nil
}
