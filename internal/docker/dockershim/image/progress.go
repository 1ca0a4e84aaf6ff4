package image

import (
	"sync"

	"github.com/moby/moby/api/types/jsonstream"
)

// progress has how far the pulls are that run.
type progress struct {
	mu sync.Mutex
	// pulls has the layers of each pull by their ID; a pull has the full name of its image. If an image is pulled twice
	// at the same time, the later pull counts.
	pulls map[string]*layers
}

type layers map[string]layer

// begin starts to follow a pull. The Engine's messages are for note, and end ends it.
func (p *progress) begin(name string) (note func(jsonstream.Message), end func()) {
	name = familiar(name)
	own := &layers{}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pulls == nil {
		p.pulls = map[string]*layers{}
	}
	p.pulls[name] = own
	note = func(m jsonstream.Message) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if next := (*own)[m.ID].after(m); next != (layer{}) {
			(*own)[m.ID] = next
		}
	}
	return note, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.pulls[name] == own {
			delete(p.pulls, name)
		}
	}
}

// PullProgress returns how many bytes of an image were fetched, how many there are to fetch (0: not known yet), and how
// many of them were unpacked. All are 0 if the image is not being pulled.
func (s *Service) PullProgress(name string) (fetched, total, unpacked int64) {
	p := &s.puller.progress
	p.mu.Lock()
	defer p.mu.Unlock()
	own := p.pulls[familiar(name)]
	if own == nil {
		return 0, 0, 0
	}
	for _, l := range *own {
		fetched, total, unpacked = fetched+l.fetched, total+l.total, unpacked+l.unpacked
	}
	return fetched, total, unpacked
}
