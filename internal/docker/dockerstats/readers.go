package dockerstats

import (
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/opencontainers/cgroups"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/base/usage"
)

const (
	// keptReaders is how many cgroups are kept open at most. Each has six open files on version 1.
	keptReaders = 1000
	// closeAfter is how long a cgroup is kept open that no request asks for.
	closeAfter = 10 * time.Minute
	// brief is what a kept cgroup is read for.
	brief = usage.Brief | cgroups.Pids
)

// readers keeps cgroups open for the next request: finding and opening one takes ten times as long as reading it.
type readers struct {
	mu   sync.Mutex
	open map[string]*reader
}

type reader struct {
	*usage.Reader
	asked time.Time // by the last request
}

// read reads the cgroup of a key, which has the ID of a container. find finds the cgroup the first time, and when the
// one from before is gone.
func (r *readers) read(key string, now time.Time, find func() (cgroupfile.Group, error)) (usage.Sample, error) {
	r.mu.Lock()
	one := r.open[key]
	if one != nil {
		one.asked = now
	}
	r.mu.Unlock()
	if one != nil {
		sample, err := one.Read(now)
		if err == nil {
			return sample, nil
		}
		r.drop(key, one) // also if another request has closed it
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrClosed) {
			return sample, err
		}
	}
	g, err := find()
	if err != nil {
		return usage.Sample{}, err
	}
	opened, err := usage.Open(g, brief)
	if err != nil {
		return usage.Sample{}, err
	}
	sample, err := opened.Read(now)
	if err != nil || !r.keep(key, &reader{opened, now}) {
		opened.Close()
	}
	return sample, err
}

// keep keeps a cgroup open, and closes those that no request has asked for. It returns false if there are too many, or
// if the cgroup is open already.
func (r *readers) keep(key string, one *reader) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, old := range r.open {
		if one.asked.Sub(old.asked) > closeAfter {
			old.Close()
			delete(r.open, key)
		}
	}
	if r.open[key] != nil || len(r.open) >= keptReaders {
		return false
	}
	if r.open == nil {
		r.open = map[string]*reader{}
	}
	r.open[key] = one
	return true
}

// drop closes a cgroup.
func (r *readers) drop(key string, one *reader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open[key] == one {
		delete(r.open, key)
	}
	one.Close()
}

// close closes all cgroups.
func (r *readers) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.open {
		one.Close()
	}
	r.open = nil
}
