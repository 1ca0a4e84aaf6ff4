package probe

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/checkpoint"
)

const (
	// keepDelay is the least time between two writes. The first change after a
	// pause is written at once: what users have seen shall not be lost.
	keepDelay = 200 * time.Millisecond
	// keepRetry is the time after a write that failed.
	keepRetry = 2 * time.Second
	// keepUnclaimed is how long the state of a pod is kept that nobody asks for
	// after the agent has started.
	keepUnclaimed = 10 * time.Minute
	keepKey       = "probes"
)

// record is what is on disk: the states by pod, container id and kind of probe.
// All pods are in one file: a burst of them costs one write.
type record map[types.UID]map[string]map[string]State

// Load reads what an earlier agent kept. It is called once, before the first pod
// is set up. An error tells what was damaged; the agent goes on without it.
func (p *Probes) Load() error {
	if p.file == nil {
		return nil
	}
	all, err := p.file.LoadAll()
	p.mu.Lock()
	p.saved = all[keepKey]
	p.mu.Unlock()
	if err != nil {
		return fmt.Errorf("load probe verdicts: %w", err)
	}
	return nil
}

// touch says that the file is out of date.
func (p *Probes) touch() { awake(p.save) }

// keep writes the file when something changed, until ctx ends.
func (p *Probes) keep(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.save:
		}
		delay := keepDelay
		if !p.write() {
			delay = keepRetry
			p.touch()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
	}
}

// write brings the file up to date. The first of a row of failures is told.
func (p *Probes) write() bool {
	if p.file == nil {
		return true
	}
	err := p.file.Save(keepKey, p.record())
	p.mu.Lock()
	told := p.failing
	p.failing = err != nil
	p.mu.Unlock()
	if err != nil && !told {
		p.opts.Log.Error("keep probe verdicts; they are written when there is room again", "disk full", checkpoint.IsDiskFull(err), "err", err)
	}
	return err == nil
}

// record takes the states as they are now.
func (p *Probes) record() record {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.opts.Now().Sub(p.began) > keepUnclaimed {
		p.saved = nil
	}
	r := record{}
	for uid, ids := range p.saved {
		for id, states := range ids {
			for kind, s := range states {
				r.set(uid, id, kind, s)
			}
		}
	}
	for uid, e := range p.pods {
		for id, t := range e.targets {
			for _, j := range t.jobs {
				if j != nil {
					r.set(uid, id, j.kind.lower(), j.state)
				}
			}
		}
	}
	return r
}

func (r record) set(uid types.UID, id, kind string, s State) {
	if r[uid] == nil {
		r[uid] = map[string]map[string]State{}
	}
	if r[uid][id] == nil {
		r[uid][id] = map[string]State{}
	}
	r[uid][id][kind] = s
}
