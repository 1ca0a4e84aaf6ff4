package sandbox

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPlaces(1, 1, 10*time.Second)
		leave, err := p.Enter(t.Context(), &corev1.Pod{})
		if err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Enter(short, &corev1.Pod{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second one entered: %v", err)
		}
		leave()
		begin := time.Now()
		hangs, err := p.Enter(t.Context(), &corev1.Pod{})
		if err != nil {
			t.Fatal(err)
		}
		next, err := p.Enter(t.Context(), &corev1.Pod{}) // the caller that hangs loses its place
		if took := time.Since(begin); err != nil || took != 10*time.Second {
			t.Errorf("the next one entered after %v, %v", took, err)
		}
		hangs() // does not free the place of another caller
		if _, err := p.Enter(withTimeout(t, time.Second), &corev1.Pod{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a place was freed twice: %v", err)
		}
		next()
	})
}

// A container of a pod that has begun starts before the sandbox of the next pod.
func TestAheadGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPlaces(1, 1, time.Hour)
		leave, err := p.Enter(t.Context(), &corev1.Pod{})
		if err != nil {
			t.Fatal(err)
		}
		order := make(chan string, 3)
		queue := func(gate Gate, name string) {
			go func() {
				leave, err := gate.Enter(t.Context(), &corev1.Pod{})
				if err != nil {
					t.Error(err)
					return
				}
				order <- name
				leave()
			}()
			synctest.Wait()
		}
		queue(p, "sandbox 1")
		queue(p, "sandbox 2")
		queue(p.Ahead(), "container")
		leave()
		var got []string
		for range 3 {
			got = append(got, <-order)
		}
		if diff := cmp.Diff([]string{"container", "sandbox 1", "sandbox 2"}, got); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
	})
}

// A pod with many containers leaves places for others.
func TestPodWithManyContainersHasOnlyItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		many := &corev1.Pod{Spec: corev1.PodSpec{Containers: make([]corev1.Container, 17)}}
		many.UID = "many"
		p := NewPlaces(3, 1, time.Hour)
		first, err := p.Enter(withTimeout(t, time.Second), many)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Enter(withTimeout(t, time.Second), many); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a pod has more than its share: %v", err)
		}
		second := make(chan error, 1)
		go func() {
			_, err := p.Enter(t.Context(), many)
			second <- err
		}()
		synctest.Wait()
		if _, err := p.Shares().Enter(t.Context(), &corev1.Pod{}); err != nil {
			t.Error(err)
		}
		if _, err := p.Shares().Enter(withTimeout(t, time.Second), many); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a pod kills beside its share: %v", err)
		}
		for range 2 { // both of one pod, which has few
			if _, err := p.Enter(withTimeout(t, time.Second), &corev1.Pod{}); err != nil {
				t.Errorf("another pod does not pass the one that waits: %v", err)
			}
		}
		first()
		if err := <-second; err != nil {
			t.Error(err)
		}
		slow := NewPlaces(1, 1, time.Hour)
		for range 2 { // the first one ignores its stop signal
			if _, err := slow.Shares().Enter(withTimeout(t, time.Second), many); err != nil {
				t.Error(err)
			}
		}
	})
}

// The end of a pod with many containers leaves CPUs to others: it rests after each container. The more it has, the
// longer it rests.
func TestEndsOfManyContainersRest(t *testing.T) {
	const took = 40 * time.Millisecond
	for containers, want := range map[int]time.Duration{16: 0, 64: took / 4, 256: took, 500: took} {
		synctest.Test(t, func(t *testing.T) {
			p := NewPlaces(1, 1, time.Hour)
			of := &corev1.Pod{Spec: corev1.PodSpec{Containers: make([]corev1.Container, containers)}}
			leave, err := p.Shares().Enter(t.Context(), of)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(took)
			leave()
			began := time.Now()
			if _, err := p.Shares().Enter(t.Context(), of); err != nil || time.Since(began) != want {
				t.Errorf("%d containers: the next one ends after %v, want %v (%v)", containers, time.Since(began), want,
					err)
			}
		})
	}
}

func withTimeout(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
