package eviction

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// machine is a node with 1,000 bytes of memory. A pod that is evicted frees its memory 300 ms later. It implements
// Facts, Alarm and Pods.
type machine struct {
	mu      sync.Mutex
	free    int64
	pods    []Candidate
	alarm   chan struct{}
	changed chan struct{}
	looks   int
	evicted []string
	// pressure has each list of conditions that differs from the one before.
	pressure [][]corev1.NodeConditionType
}

func (m *machine) Observe(now time.Time) (Observations, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.looks++
	return Observations{MemoryAvailable: {Available: m.free, Capacity: 1000, At: now}}, nil
}

// after waits, and returns the state then.
func (m *machine) after(d time.Duration) (looks int, evicted []string) {
	time.Sleep(d)
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	looks, m.looks = m.looks, 0
	return looks, m.evicted
}

// runShort leaves 50 bytes, and notifies.
func (m *machine) runShort() {
	m.mu.Lock()
	m.free = 50
	m.mu.Unlock()
	m.alarm <- struct{}{}
}

func (m *machine) Arm(Signal, Observation, int64) {}
func (m *machine) Covers(Signal) bool             { return true }
func (m *machine) C() <-chan struct{}             { return m.alarm }
func (m *machine) Changed() <-chan struct{}       { return m.changed }

func (m *machine) Reclaim(context.Context, Crossing) (removed, soon bool) { return false, false }

func (m *machine) Candidates(context.Context, Signal) []Candidate {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.pods)
}

func (m *machine) Usage(context.Context, *corev1.Pod, Signal) Usage { return Usage{} }

func (m *machine) Evict(v Victim) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.evicted = append(m.evicted, v.Pod.Name+" "+v.Grace.String())
	for i := range m.pods {
		if m.pods[i].Pod == v.Pod {
			m.pods[i].EndsBy = time.Now().Add(v.Grace)
		}
	}
	time.AfterFunc(300*time.Millisecond, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		for i, p := range m.pods {
			if p.Pod == v.Pod {
				m.free += p.Usage
				m.pods = append(m.pods[:i:i], m.pods[i+1:]...)
				break
			}
		}
		select {
		case m.changed <- struct{}{}:
		default:
		}
	})
}

func (m *machine) SetPressure(all []corev1.NodeConditionType) {
	if len(m.pressure) == 0 || !cmp.Equal(m.pressure[len(m.pressure)-1], all) {
		m.pressure = append(m.pressure, all)
	}
}

// The kernel notifies once. The evictor takes the pods that the shortfall needs, waits for their end without taking
// others, and sleeps again when the pressure is over.
func TestRunEvictsWhatIsNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ready := make(chan struct{})
		m := &machine{free: 500, alarm: make(chan struct{}, 1), changed: make(chan struct{}, 1), pods: []Candidate{
			{Pod: aPod("small"), Known: true, Usage: 20}, {Pod: aPod("hog"), Known: true, Usage: 200},
			{Pod: aPod("middle"), Known: true, Usage: 100}, {Pod: aPod("kept"), Known: true, Usage: 300, Request: 300},
		}}
		e := New(Options{Policy: Policy{
			Thresholds: []Threshold{{Signal: MemoryAvailable, Value: Amount{Quantity: 300}}}, Transition: time.Minute},
			Facts: m, Alarm: m, Pods: m, Ready: ready, Pending: 100 * time.Millisecond,
			Metrics: NewMetrics(), Now: time.Now,
			Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go e.Run(ctx) //nolint:errcheck // it returns the context's error

		if looks, _ := m.after(time.Minute); looks != 0 {
			t.Errorf("%d looks before the pods are known", looks)
		}
		close(ready)
		if looks, evicted := m.after(time.Minute); looks > 7 || evicted != nil {
			t.Errorf("%d looks in an idle minute, evicted %v", looks, evicted)
		}
		m.runShort()
		if _, evicted := m.after(time.Second); !cmp.Equal([]string{"hog 0s", "middle 0s"}, evicted) {
			t.Errorf("evicted %v", evicted)
		}
		m.after(2 * time.Minute)
		memory := []corev1.NodeConditionType{corev1.NodeMemoryPressure}
		if diff := cmp.Diff([][]corev1.NodeConditionType{nil, memory, nil}, m.pressure); diff != "" {
			t.Error(diff)
		}

		// Nothing is left that the node may take, so the loop slows down.
		m.mu.Lock()
		m.pods = nil
		m.mu.Unlock()
		m.runShort()
		if looks, evicted := m.after(time.Minute); looks > 32 || len(evicted) != 2 {
			t.Errorf("%d looks in a minute without victims, evicted %v", looks, evicted)
		}
		cancel()
		synctest.Wait()
	})
}
