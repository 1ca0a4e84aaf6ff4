package source

import (
	"path/filepath"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/source/content"
)

// List records that the directory at a path has been read completely. A zero identity says that it is not there.
func (m *merge) List(path string, id object.Directory) {
	m.mu.Lock()
	changed := m.listed[path] != id
	m.listed[path] = id
	m.mu.Unlock()
	if changed {
		m.originsChanged.Wake()
	}
}

// Origin returns where the object in the table was read. It returns false for an object of the cluster.
func (s *Sources) Origin(key object.Key) (object.Origin, bool) {
	s.merge.mu.Lock()
	defer s.merge.mu.Unlock()
	i, o := offered(s.merge, key)
	if i == nil {
		return object.Origin{}, false
	}
	return object.Origin{Path: i.Origin, Dir: o.dir}, true
}

// Fate returns the known fate of an object from that origin, if no origin has the object. It is valid after
// LocalSynced.
func (s *Sources) Fate(o object.Origin) object.Fate {
	m := s.merge
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, offered := m.origins[o.Path]; offered {
		return object.Present
	}
	if o.Dir.IsZero() || m.listed[filepath.Dir(o.Path)] != o.Dir {
		return object.Untraced
	}
	for name, offer := range m.origins {
		if name != originLocal && (offer.faulty || content.Faulty(offer.problems)) {
			return object.Unsure
		}
	}
	return object.Removed
}

// OriginsChanged receives after a change of any origin, which may change the result of Origin and Fate. It has one
// reader.
func (s *Sources) OriginsChanged() <-chan struct{} { return s.merge.originsChanged.C() }
