package condition

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/base/wake"
)

// Table holds the facts about this node. It is safe for concurrent use.
type Table struct {
	mu      sync.Mutex
	facts   Facts
	changed wake.Broadcast // of the conditions, perhaps
}

// New returns a table without facts: the node is not ready.
func New() *Table {
	return &Table{facts: Facts{}}
}

// Set reports a problem of a kind, or "" if there is none. The problem becomes part of Ready's message. For the
// pressure kinds only its presence counts.
func (t *Table) Set(kind Kind, problem string) { t.set(map[Kind]string{kind: problem}) }

// SetPressure reports which of some pressure conditions hold.
func (t *Table) SetPressure(some, hold []corev1.NodeConditionType) {
	problems := map[Kind]string{}
	for _, p := range pressures() {
		switch {
		case slices.Contains(hold, p.of):
			problems[p.kind] = p.message
		case slices.Contains(some, p.of):
			problems[p.kind] = ""
		}
	}
	t.set(problems)
}

// Pressures returns the pressure conditions of a node without a Node object. Their transition times come from the
// facts.
func (t *Table) Pressures() []corev1.NodeCondition {
	facts, now := t.Facts(), time.Now()
	all := pressureConditions(facts)
	for i, p := range pressures() {
		all[i].LastHeartbeatTime = metav1.NewTime(now)
		all[i].LastTransitionTime = metav1.NewTime(facts[p.kind].Since)
	}
	return all
}

// UnderPressure returns the pressure conditions that hold.
func (t *Table) UnderPressure() (all []corev1.NodeConditionType) {
	for _, c := range pressureConditions(t.Facts()) {
		if c.Status == corev1.ConditionTrue {
			all = append(all, c.Type)
		}
	}
	return all
}

// set stores several facts at once, so that no reader sees only some of them.
func (t *Table) set(problems map[Kind]string) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	changed := false
	for kind, problem := range problems {
		was, known := t.facts[kind]
		fact := Fact{Problem: problem, Well: was.Well, Since: was.Since}
		if !known || (was.Problem == "") != (problem == "") {
			fact.Since = now
		}
		if problem == "" {
			fact.Well = now
		}
		t.facts[kind] = fact
		wasSilent := kind == Runtime && now.Sub(was.Well) >= RuntimeSilence
		changed = changed || !known || was.Problem != problem || wasSilent
	}
	if changed {
		t.changed.Wake()
	}
}

// Conditions decides the current conditions. before are the conditions of the Node object, or nil if there is none yet.
func (t *Table) Conditions(before []corev1.NodeCondition) []corev1.NodeCondition {
	return Decide(t.Facts(), before, time.Now())
}

// Facts returns a copy of the facts.
func (t *Table) Facts() Facts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.facts)
}

// Ready returns "" if the node is ready, otherwise the reason why it is not.
func (t *Table) Ready() string {
	if c := ready(t.Facts(), time.Now()); c.Status != corev1.ConditionTrue {
		return c.Message
	}
	return ""
}

// Changed returns a channel that is closed when the conditions may have changed since the call.
func (t *Table) Changed() <-chan struct{} { return t.changed.C() }

// Run wakes the watchers when a condition changes by time alone, because the runtime has been silent too long.
func (t *Table) Run(ctx context.Context) error {
	for {
		changed := t.Changed()
		wait, stop := make(<-chan time.Time), func() bool { return true }
		now := time.Now()
		if at, ok := nextChange(t.Facts(), now); ok {
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

// expire wakes the watchers if the runtime has been silent too long.
func (t *Table) expire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.facts[Runtime].Well) >= RuntimeSilence {
		t.changed.Wake()
	}
}
