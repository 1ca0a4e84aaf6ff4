package worker

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/model/pod"
)

// faulty returns a step that panics as often as left says, at the time that n.aside allows.
func (n *node) faulty(phase Phase, left *int) Step {
	fail := func() {
		n.mu.Lock()
		fails := *left > 0
		*left--
		n.mu.Unlock()
		if fails {
			panic("broken")
		}
	}
	return Step{
		Name: "faulty", Phase: phase,
		Setup:    func(context.Context, *Run) error { fail(); n.record("+faulty"); return nil },
		Teardown: func(context.Context, *Run) error { fail(); n.record("-faulty"); return nil },
	}
}

func TestPanicOfStepSetsPodAsideAndIsRetried(t *testing.T) {
	for phase, part := range map[Phase]string{Prepare: "step/faulty", Act: "pass"} {
		synctest.Test(t, func(t *testing.T) {
			n, left := &node{}, 2
			w := newWorker(n, n.faulty(phase, &left))
			began := time.Now()
			detach, _ := start(t, w)
			synctest.Wait()
			if got := n.records(); !slices.Equal(got, []string{part + ": broken"}) {
				t.Fatalf("%v: after the first try: %v", phase, got)
			}
			for !slices.Contains(n.records(), "+faulty") {
				time.Sleep(time.Second)
				synctest.Wait()
			}
			if took := time.Since(began); took < 3*time.Minute || took > 3*time.Minute+time.Second {
				t.Errorf("%v: the third try came after %v, want 1m + 2m", phase, took)
			}
			if at := n.SetAside("u"); !at.IsZero() {
				t.Errorf("%v: the pod is still set aside until %v", phase, at)
			}
			detach()
			synctest.Wait()
		})
	}
}

func TestPodSetAsideCanBeRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, left := &node{}, 2 // of the setup, then of the teardown
		w := newWorker(n, n.faulty(Prepare, &left))
		_, ended := start(t, w)
		synctest.Wait()
		w.Stop(pod.Stop{Reason: pod.StopDeleted, Remove: true, At: time.Now()})
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		want := []string{"step/faulty: broken", "teardown: broken", "-faulty"}
		if diff := cmp.Diff(want, n.records()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestHangsNamesCallsBeyondTheirPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, release := &node{}, make(chan struct{})
		block := func(context.Context, *Run) error { <-release; return nil }
		w := newWorker(n, Step{Name: "volume", Setup: block},
			Step{Name: "image", Patience: time.Hour, Setup: block}, Step{Name: "act", Phase: Act, Setup: block})
		began := time.Now()
		detach, _ := start(t, w)
		time.Sleep(callPatience)
		synctest.Wait()
		if got := w.Hangs(); len(got) > 0 {
			t.Errorf("hangs within the patience: %v", got)
		}
		time.Sleep(time.Second)
		want := []Hang{{What: "step/act", Since: began}, {What: "step/volume", Since: began}}
		if diff := cmp.Diff(want, w.Hangs()); diff != "" {
			t.Errorf("hangs (-want +got):\n%s", diff)
		}
		close(release)
		synctest.Wait()
		if got := w.Hangs(); len(got) > 0 {
			t.Errorf("hangs after the calls have returned: %v", got)
		}
		detach()
		synctest.Wait()
	})
}
