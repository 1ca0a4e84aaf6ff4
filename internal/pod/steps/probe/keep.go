package probe

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/pod/plan"
)

const (
	// keepRetry is the time after a write that failed.
	keepRetry = 2 * time.Second
	// keepUnclaimed is how long the state of a pod is kept that nobody asks for
	// after the agent has started.
	keepUnclaimed = 10 * time.Minute
)

// record is what is on disk of one pod: the states by container id and kind of
// probe. It is written before anybody is told of what it says, so that no agent
// forgets what users have seen. It is worth nothing after a power cut, which
// takes the containers along.
type record map[string]map[string]State

var recordFormat = checkpoint.Format{Version: 2}

// Load reads what an earlier agent kept. It is called once, before the first pod
// is set up. An error tells what was damaged; the agent goes on without it.
func (p *Probes) Load() error {
	if p.files == nil {
		return nil
	}
	all, err := p.files.LoadAll()
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

// touch says that a pod's file is out of date. The caller holds mu, and calls
// write when it has given it back.
func (p *Probes) touch(uid types.UID) {
	if p.files != nil {
		p.stale[uid] = true
	}
}

// keep writes again what could not be written, and forgets at last what an
// earlier agent kept of pods that nobody has, until ctx ends.
func (p *Probes) keep(ctx context.Context) {
	unclaimed := time.NewTimer(keepUnclaimed)
	defer unclaimed.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.retry.C():
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

// write brings all files up to date. The first of a row of failures is told.
func (p *Probes) write() {
	p.disk.Lock() // so that an older state never replaces a newer one
	defer p.disk.Unlock()
	p.mu.Lock()
	records := make(map[types.UID]record, len(p.stale))
	for uid := range p.stale {
		records[uid] = p.record(uid)
	}
	clear(p.stale)
	p.mu.Unlock()
	if len(records) == 0 {
		return
	}
	var failed []types.UID
	var last error
	for uid, r := range records {
		var err error
		if len(r) == 0 {
			err = p.files.DeleteUnsynced(string(uid))
		} else {
			err = p.files.SaveUnsynced(string(uid), r)
		}
		if err != nil {
			failed, last = append(failed, uid), err
		}
	}
	p.wrote(failed, last)
}

// wrote has what could not be written be tried again.
func (p *Probes) wrote(failed []types.UID, err error) {
	p.mu.Lock()
	for _, uid := range failed {
		p.touch(uid)
	}
	told := p.failing
	p.failing = len(failed) > 0
	p.mu.Unlock()
	if len(failed) == 0 {
		return
	}
	if !told {
		p.opts.Log.Error("keep probe verdicts; they are written when there is room again", "disk full",
			checkpoint.IsDiskFull(err), "err", err)
	}
	p.retry.Wake()
}

// record takes the states of a pod as they are now, and those that are about to
// be told. The caller holds mu.
func (p *Probes) record(uid types.UID) record {
	r := record{}
	for id, states := range p.saved[uid] {
		for kind, s := range states {
			r.set(id, kind, s)
		}
	}
	for id, t := range p.targets(uid) {
		for _, j := range t.jobs {
			switch {
			case j == nil:
			case j.coming != nil:
				r.set(id, j.kind.lower(), *j.coming)
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

// ready is what the states of a container say, as far as it is probed.
func (r record) ready(id string) Ready {
	good := func(k Kind) bool {
		s, probed := r[id][k.lower()]
		return !probed || s.Verdict == plan.Success
	}
	return Ready{Started: good(Startup), Ready: good(Startup) && good(Readiness)}
}

// take removes the state of one probe.
func (r record) take(id string, k Kind) (State, bool) {
	s, ok := r[id][k.lower()]
	delete(r[id], k.lower())
	if len(r[id]) == 0 {
		delete(r, id)
	}
	return s, ok
}
