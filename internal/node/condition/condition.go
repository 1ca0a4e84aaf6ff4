package condition

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Table holds the facts of this node. It is safe for concurrent use.
type Table struct {
	mu      sync.Mutex
	facts   Facts
	changed chan struct{} // closed and replaced when conditions may be others
}

// New returns a table that was told nothing: the node is not ready.
func New() *Table {
	return &Table{facts: Facts{}, changed: make(chan struct{})}
}

// Set says that there is a problem with the kind, or that there is none: "". A
// problem is in the words of Ready's message; of the pressures only whether there
// is one counts.
func (t *Table) Set(kind Kind, problem string) { t.set(map[Kind]string{kind: problem}) }

// set takes what was learned at once, so that nobody sees half of it.
func (t *Table) set(problems map[Kind]string) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	news := false
	for kind, problem := range problems {
		was, told := t.facts[kind]
		fact := Fact{Problem: problem, Well: was.Well}
		if problem == "" {
			fact.Well = now
		}
		t.facts[kind] = fact
		wasSilent := kind == Runtime && now.Sub(was.Well) >= RuntimeSilence
		news = news || !told || was.Problem != problem || wasSilent
	}
	if news {
		t.wake()
	}
}

func (t *Table) wake() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// Conditions decides them now. before are those of the Node object, nil when
// there is none yet.
func (t *Table) Conditions(before []corev1.NodeCondition) []corev1.NodeCondition {
	return Decide(t.Facts(), before, time.Now())
}

// Facts are what was said so far.
func (t *Table) Facts() Facts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.facts)
}

// Ready is "" when the node is ready, else why it is not.
func (t *Table) Ready() string {
	if c := ready(t.Facts(), time.Now()); c.Status != corev1.ConditionTrue {
		return c.Message
	}
	return ""
}

// Changed is closed when the conditions may be others than at the call.
func (t *Table) Changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// Run tells when conditions change by time alone: a runtime that says nothing.
func (t *Table) Run(ctx context.Context) error {
	for {
		changed := t.Changed()
		wait, stop := make(<-chan time.Time), func() bool { return true }
		now := time.Now()
		if at, ok := again(t.Facts(), now); ok {
			timer := time.NewTimer(at.Sub(now))
			wait, stop = timer.C, timer.Stop
		}
		select {
		case <-ctx.Done():
			stop()
			return nil
		case <-changed:
		case <-wait:
			t.expire()
		}
		stop()
	}
}

// expire wakes whoever watches when the runtime has been silent too long.
func (t *Table) expire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.facts[Runtime].Well) >= RuntimeSilence {
		t.wake()
	}
}
