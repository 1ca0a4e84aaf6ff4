package probe

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/pod/plan"
)

const (
	// keepRetry is the time between a failed write and the next attempt.
	keepRetry = 2 * time.Second
	// keepUnclaimed is how long after the agent's start the saved state of a pod is kept if no such pod is set up.
	keepUnclaimed = 10 * time.Minute
)

// files are the verdicts on disk, one file for each pod.
type files struct {
	dir   *checkpoint.Dir[record]
	log   *slog.Logger
	retry wake.Signal // raised when a file could not be written

	writing sync.Mutex // held while files are written; taken before Probes.mu. It guards failing.
	failing bool       // the last write of a file failed
}

func newFiles(dir string, log *slog.Logger) *files {
	return &files{dir: checkpoint.NewDir[record](dir, recordFormat), log: log, retry: wake.New()}
}

// save writes or deletes the files of pods and returns the pods whose file could not be written. Of several failures in
// a row, only the first is logged. The caller holds writing.
func (f *files) save(records map[types.UID]record) (failed []types.UID) {
	if len(records) == 0 {
		return nil
	}
	var last error
	for uid, r := range records {
		var err error
		if len(r) == 0 {
			err = f.dir.DeleteUnsynced(string(uid))
		} else {
			err = f.dir.SaveUnsynced(string(uid), r)
		}
		if err != nil {
			failed, last = append(failed, uid), err
		}
	}
	if last != nil && !f.failing {
		f.log.Error("cannot write probe verdicts, retrying", "disk full", checkpoint.IsDiskFull(last), "err", last)
	}
	f.failing = last != nil
	return failed
}

// record is the file of one pod: its states by container id and kind of probe. It is written before any part can read
// the new state, so that no agent forgets what users have seen. It need not survive a power cut, which also ends the
// containers.
type record map[string]map[string]State

var recordFormat = checkpoint.Format{Version: 2}

// Load reads the state that an earlier agent kept. It is called once, before the first pod is set up. An error names
// damaged files. The agent continues without them.
func (p *Probes) Load() error {
	if p.files == nil {
		return nil
	}
	all, err := p.files.dir.LoadAll()
	p.mu.Lock()
	for uid, r := range all {
		p.saved[types.UID(uid)] = r
	}
	p.mu.Unlock()
	if err != nil {
		return fmt.Errorf("load probe verdicts: %w", err)
	}
	return nil
}

// touch marks a pod's file as stale. The caller holds mu, and calls write after releasing it.
func (p *Probes) touch(uid types.UID) {
	if p.files != nil {
		p.stale[uid] = true
	}
}

// keep retries failed writes until ctx ends. After keepUnclaimed it deletes the saved state of pods that no longer
// exist.
func (p *Probes) keep(ctx context.Context) {
	unclaimed := time.NewTimer(keepUnclaimed)
	defer unclaimed.Stop()
	var retry <-chan struct{}
	if p.files != nil {
		retry = p.files.retry.C()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-retry:
			select {
			case <-ctx.Done():
				return
			case <-time.After(keepRetry):
			}
		case <-unclaimed.C:
			p.mu.Lock()
			for uid := range p.saved {
				p.touch(uid)
			}
			clear(p.saved)
			p.mu.Unlock()
		}
		p.write()
	}
}

// write updates all stale files. A file that could not be written stays stale, and keep retries it.
func (p *Probes) write() {
	if p.files == nil {
		return
	}
	p.files.writing.Lock() // so that an older state never replaces a newer one
	defer p.files.writing.Unlock()
	p.mu.Lock()
	records := make(map[types.UID]record, len(p.stale))
	for uid := range p.stale {
		records[uid] = p.record(uid)
	}
	clear(p.stale)
	p.mu.Unlock()
	failed := p.files.save(records)
	if len(failed) == 0 {
		return
	}
	p.mu.Lock()
	for _, uid := range failed {
		p.touch(uid)
	}
	p.mu.Unlock()
	p.files.retry.Wake()
}

// record returns the current states of a pod, including those that are about to take effect. The caller holds mu.
func (p *Probes) record(uid types.UID) record {
	r := record{}
	for id, states := range p.saved[uid] {
		for kind, s := range states {
			r.set(id, kind, s)
		}
	}
	for id, t := range p.pods.targets(uid) {
		for _, j := range t.jobs {
			switch {
			case j == nil:
			case j.pending != nil:
				r.set(id, j.kind.lower(), *j.pending)
			default:
				r.set(id, j.kind.lower(), j.state)
			}
		}
	}
	return r
}

func (r record) set(id, kind string, s State) {
	if r[id] == nil {
		r[id] = map[string]State{}
	}
	r[id][kind] = s
}

// ready returns the status fields that follow from the states of a container's probes. Probes that it does not have
// count as successful.
func (r record) ready(id string) Ready {
	good := func(k Kind) bool {
		s, probed := r[id][k.lower()]
		return !probed || s.Verdict == plan.Success
	}
	return Ready{Started: good(Startup), Ready: good(Startup) && good(Readiness)}
}

// take removes and returns the state of one probe.
func (r record) take(id string, k Kind) (State, bool) {
	s, ok := r[id][k.lower()]
	delete(r[id], k.lower())
	if len(r[id]) == 0 {
		delete(r, id)
	}
	return s, ok
}
