package identity

import (
	"errors"
	"io/fs"
	"maps"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/model/pod"
)

// Identities are kept in one file: whoever loses it starts the pods of edited
// manifests anew, nothing worse. They are for one goroutine at a time.
type Identities struct {
	// Adopt says which pod the runtime has already for the pod of a manifest, under
	// whatever UID. It is asked once for each place; nil: not any more, or never.
	Adopt func(*pod.Pod) (types.UID, bool)

	path  string // empty: kept in memory only
	known map[string]Identity
	met   map[string]bool // places that Adopt was asked about
	dirty bool
}

// New returns identities kept in a file, or only in memory if path is empty.
// Nothing is read before Load.
func New(path string) *Identities {
	return &Identities{path: path, known: map[string]Identity{}, met: map[string]bool{}}
}

// format of the file.
func format() checkpoint.Format { return checkpoint.Format{Version: 1} }

// Place is an origin's pod of that name.
func Place(origin string, name types.NamespacedName) string { return origin + " " + name.String() }

// Load reads the file of an earlier agent. One that is damaged was moved aside.
func (s *Identities) Load() error {
	if s.path == "" {
		return nil
	}
	known, err := checkpoint.Load[map[string]Identity](s.path, format())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	maps.Copy(s.known, known)
	return err
}

// Dirty says that Flush has something to write.
func (s *Identities) Dirty() bool { return s.dirty }

// Flush writes what has changed.
func (s *Identities) Flush() error {
	if !s.dirty {
		return nil
	}
	err := s.save()
	s.dirty = err != nil
	return err
}

func (s *Identities) save() error {
	if s.path == "" {
		return nil
	}
	return checkpoint.Save(s.path, format(), s.known)
}

// Identify gives the pod of a manifest the UID that it keeps, and what was
// changed of it over the API. p stays as it is.
func (s *Identities) Identify(origin string, p *pod.Pod) *pod.Pod {
	key := Place(origin, p.Key())
	was, known := s.known[key]
	now := recognize(was, p)
	if s.Adopt != nil && !s.met[key] {
		s.met[key] = true
		if runs, ok := s.Adopt(p); ok {
			now = adopt(was, now, runs)
		}
	}
	if !known || now != was {
		s.known[key], s.dirty = now, true
	}
	c := *p
	c.Pod = p.DeepCopy()
	if c.UID = now.UID; c.UID != p.UID {
		c.Annotations[pod.AnnotationConfigHash] = string(now.UID) // every pod of a manifest has some
	}
	if now.Amended != nil {
		now.Amended.apply(c.Pod)
	}
	return &c
}

// Retain forgets what is not at a place that is wanted.
func (s *Identities) Retain(wanted func(place string) bool) {
	for key := range s.known {
		if !wanted(key) {
			delete(s.known, key)
			s.dirty = true
		}
	}
}

// Amend remembers what makes base, the pod of a manifest, the pod now; it is on
// disk when Amend returns.
func (s *Identities) Amend(origin string, base, now *pod.Pod) error {
	at := Place(origin, base.Key())
	was := s.known[at]
	next := was
	next.Amended = amended(base.Pod, now.Pod)
	s.known[at] = next
	if err := s.save(); err != nil {
		s.known[at] = was
		return err
	}
	return nil
}
