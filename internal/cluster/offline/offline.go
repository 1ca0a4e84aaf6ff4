package offline

import (
	"cmp"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
	"github.com/berth-run/berth/internal/cluster/token"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
)

// Options of an Offline.
type Options struct {
	// Root is the agent's directory.
	Root string
	// KeyFile has the key, for its owner alone; empty: one is made below Root.
	KeyFile string
	// All keeps every accepted pod; otherwise only those with AnnotationAlways.
	All bool
	// MaxAge is for how long pods may be started after the API server was last
	// heard; 0: for ever.
	MaxAge time.Duration

	Desired *store.Table[types.UID, *pod.Pod]
	Objects *object.Table
	// Find returns an object, nil when there is none. known is false until that
	// can be told: what was kept before stays then.
	Find func(object.Key) (v object.Value, known bool)
	// Accepted says that the node has taken a pod on.
	Accepted func(types.UID) bool
	// Names lists the objects that a pod needs.
	Names func(*corev1.Pod) []object.Key
	// Sets are what a pod needs besides the objects that it names. known is as
	// that of Find. nil: there are none.
	Sets func(p *corev1.Pod, named []object.Value) (s Sets, known bool)
	// Tokens are those that a pod was given; nil: none are known.
	Tokens func(types.UID) map[string]token.Token
	// Answers says that the API server was heard, and everything that it wants of
	// this node is in Desired.
	Answers func() bool
	Now     func() time.Time
	Log     *slog.Logger
}

// Offline keeps accepted pods on disk.
type Offline struct {
	Options
	disk  *checkpoint.Dir[record]
	dirty chan struct{}

	mu      sync.Mutex
	key     cipher.AEAD
	written map[types.UID]written
	due     map[types.UID]bool
}

// written is what is on disk of a pod; zero: something that is compared when the pod
// is heard of.
type written struct {
	stamp string
	sum   [sha256.Size]byte // of the content
}

// record is a pod on disk, version 1. What is not encrypted is for people.
type record struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Sealed is content as JSON, by AES-256-GCM with the uid as additional data.
	Sealed []byte `json:"sealed"`
}

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

// confirmation is when the API server was last heard, version 1.
type confirmation struct {
	At time.Time `json:"at"`
}

func format() checkpoint.Format { return checkpoint.Format{Version: 1} }

// New makes an Offline. Nothing is read before Load.
func New(o Options) *Offline {
	return &Offline{
		Options: o, disk: checkpoint.NewDir[record](filepath.Join(o.Root, "offline", "pods"), format()),
		dirty: make(chan struct{}, 1), written: map[types.UID]written{}, due: map[types.UID]bool{},
	}
}

func (o *Offline) confirmedFile() string { return filepath.Join(o.Root, "offline", "confirmed") }

// Load reads the key, and the pods that may be started while the API server does
// not answer, by priority and age. The list has what could be read also when
// there is an error; one that is about the key means that nothing can be kept.
func (o *Offline) Load() ([]Kept, error) {
	if err := os.MkdirAll(filepath.Join(o.Root, "offline"), 0o700); err != nil {
		return nil, err
	}
	key, err := loadKey(cmp.Or(o.KeyFile, filepath.Join(o.Root, "offline", "key")), o.KeyFile == "")
	if err != nil {
		return nil, fmt.Errorf("read the key of the pods that are kept: %w", err)
	}
	records, err := o.disk.LoadAll()
	errs := []error{err}
	o.mu.Lock()
	o.key = key
	o.mu.Unlock()
	var kept []Kept
	for uid, r := range records {
		k, err := open(key, types.UID(uid), r)
		if err != nil {
			errs = append(errs, fmt.Errorf("read what is kept of pod %s/%s (%s): %w", r.Namespace, r.Name, uid, err))
			o.mark(types.UID(uid))
			continue
		}
		o.written[types.UID(uid)] = written{}
		kept = append(kept, k)
	}
	at, err := checkpoint.Load[confirmation](o.confirmedFile(), format())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	slices.SortFunc(kept, func(a, b Kept) int {
		return cmp.Or(cmp.Compare(pod.Priority(b.Pod), pod.Priority(a.Pod)),
			a.Pod.CreationTimestamp.Compare(b.Pod.CreationTimestamp.Time), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	return fresh(kept, at.At, o.Now(), o.MaxAge), errors.Join(errs...)
}

// encode is what is to be encrypted of a pod.
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

func seal(key cipher.AEAD, p *corev1.Pod, plain []byte) record {
	return record{p.Namespace, p.Name, key.Seal(nil, nil, plain, []byte(p.UID))}
}

func open(key cipher.AEAD, uid types.UID, r record) (k Kept, err error) {
	plain, err := key.Open(nil, nil, r.Sealed, []byte(uid))
	if err != nil {
		return k, errors.New("it was encrypted with another key")
	}
	var c content
	if err := json.Unmarshal(plain, &c); err != nil {
		return k, err
	}
	k = Kept{Pod: c.Pod, Sets: c.Sets, Tokens: c.Tokens}
	for _, t := range c.Objects {
		kind, ok := object.KindNamed(t.Kind)
		if !ok {
			return k, fmt.Errorf("kind %q is not known", t.Kind)
		}
		v := kind.New()
		if err := json.Unmarshal(t.Object, v); err != nil {
			return k, fmt.Errorf("%s: %w", t.Kind, err)
		}
		k.Objects = append(k.Objects, v)
	}
	return k, nil
}
