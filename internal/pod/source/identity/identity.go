package identity

import (
	"errors"
	"io/fs"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/model/pod"
)

// Identities are stored in one file. If the file is lost, only the pods of edited manifests start anew. One goroutine
// at a time may use them.
type Identities struct {
	// Running are the pods that the runtime has already. nil: it is not searched.
	Running Running

	path  string // empty: in memory only
	known map[string]Identity
	// places are the keys of known, by origin and NAMESPACE/NAME.
	places   map[string]map[string]string
	searched map[string]bool // places that Running was searched for
	dirty    bool
}

// Running are the pods that run already.
type Running interface {
	// Find returns the UID of the pod that runs for a manifest. It is called once for each place.
	Find(*pod.Pod) (types.UID, bool)
}

// New returns identities stored in the file at path, or only in memory if path is empty. Call Load to read the file.
func New(path string) *Identities {
	return &Identities{path: path, known: map[string]Identity{}, places: map[string]map[string]string{},
		searched: map[string]bool{}}
}

// format is the version of the file.
func format() checkpoint.Format { return checkpoint.Format{Version: 1} }

// Place returns the key of an origin's pod of that name.
func Place(origin string, name types.NamespacedName) string { return origin + " " + name.String() }

// Load reads the file of the previous agent. A damaged file has been moved aside when Load returns its error.
func (s *Identities) Load() error {
	if s.path == "" {
		return nil
	}
	known, err := checkpoint.Load[map[string]Identity](s.path, format())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for place, i := range known {
		s.set(place, i)
	}
	return err
}

// set stores an identity. An origin may have spaces, a name has none.
func (s *Identities) set(place string, i Identity) {
	s.known[place] = i
	at := strings.LastIndexByte(place, ' ')
	origin, name := place[:max(at, 0)], place[at+1:]
	if s.places[origin] == nil {
		s.places[origin] = map[string]string{}
	}
	s.places[origin][name] = place
}

// Dirty reports whether Flush has changes to write.
func (s *Identities) Dirty() bool { return s.dirty }

// Flush writes the changes.
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

// Identify returns a copy of a manifest's pod with its stored UID and the changes made over the API.
func (s *Identities) Identify(origin string, p *pod.Pod) *pod.Pod {
	key := Place(origin, p.Key())
	was, known := s.known[key]
	now := recognize(was, p)
	if s.Running != nil && !s.searched[key] {
		s.searched[key] = true
		if runs, ok := s.Running.Find(p); ok {
			now = adopt(was, now, runs)
		}
	}
	if !known || !reflect.DeepEqual(now, was) {
		s.set(key, now)
		s.dirty = true
	}
	c := *p
	c.Pod = p.DeepCopy()
	if c.UID = now.UID; c.UID != p.UID {
		c.Annotations[pod.AnnotationConfigHash] = string(now.UID) // every pod of a manifest has annotations
	}
	if now.Amended != nil {
		now.Amended.apply(c.Pod)
	}
	return &c
}

// Retain removes the identities of an origin's pods that are not wanted. A name is NAMESPACE/NAME.
func (s *Identities) Retain(origin string, wanted func(name string) bool) {
	for name, place := range s.places[origin] {
		if !wanted(name) {
			delete(s.places[origin], name)
			delete(s.known, place)
			s.dirty = true
		}
	}
	if len(s.places[origin]) == 0 {
		delete(s.places, origin)
	}
}

// RetainAll removes the identities of all pods that are not wanted.
func (s *Identities) RetainAll(wanted func(origin, name string) bool) {
	for origin := range s.places {
		s.Retain(origin, func(name string) bool { return wanted(origin, name) })
	}
}

// Amend stores the changes that turn base, the manifest's pod, into now. They are on disk when Amend returns.
func (s *Identities) Amend(origin string, base, now *pod.Pod) error {
	at := Place(origin, base.Key())
	was := s.known[at]
	next := was
	next.Amended = amended(base.Pod, now.Pod)
	s.set(at, next)
	if err := s.save(); err != nil {
		s.known[at] = was
		return err
	}
	return nil
}
