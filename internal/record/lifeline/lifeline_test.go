package lifeline

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/store"
)

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }

func running(from int) corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at(from))}}
}

func ended(from, to int, code int32) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: metav1.NewTime(at(from)),
		FinishedAt: metav1.NewTime(at(to)), ExitCode: code, Reason: "Error"}}
}

func TestInstancesOfSeveralRestartsAreKept(t *testing.T) {
	c := &Container{Name: "app"}
	for _, st := range []corev1.ContainerStatus{
		{State: running(0)},
		{State: ended(0, 5, 1)},
		{LastTerminationState: ended(0, 5, 1), State: running(6)},
		{LastTerminationState: ended(0, 5, 1), State: running(6)},
		{LastTerminationState: ended(6, 7, 2), State: running(9)}, // the end of the second one was not seen
	} {
		c.show(st)
	}
	want := []Instance{{at(0), at(5), 1, "Error"}, {at(6), at(7), 2, "Error"}, {Start: at(9)}}
	if diff := cmp.Diff(want, c.Instances); diff != "" {
		t.Error(diff)
	}
}

func TestEqualResultsOfAProbeAreOne(t *testing.T) {
	c := &Container{Name: "app"}
	for i, ok := range []bool{false, true, true, true, false} {
		c.probed("Readiness", ok, at(i))
	}
	c.probed("Liveness", true, at(9))
	want := []Probe{
		{"Readiness", []Result{{at(0), false}, {at(1), true}, {at(4), false}}, at(4)},
		{"Liveness", []Result{{at(9), true}}, at(9)},
	}
	if diff := cmp.Diff(want, c.Probes); diff != "" {
		t.Error(diff)
	}
}

func TestLifelineIsBounded(t *testing.T) {
	c := &Container{Name: "app"}
	for i := range 1000 {
		c.show(corev1.ContainerStatus{State: ended(2*i, 2*i+1, 1)})
		c.probed("Readiness", i%2 == 0, at(i))
	}
	last := c.Instances[len(c.Instances)-1].Start
	if len(c.Instances) != maxInstances || len(c.Probes[0].Results) != maxResults || !last.Equal(at(1998)) {
		t.Errorf("%d instances, the last from %s, and %d results", len(c.Instances), last, len(c.Probes[0].Results))
	}
}

func TestLifelineGoesWithItsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := store.New[types.NamespacedName, *corev1.Pod]()
		r := New(began)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx, pods) }()
		key := types.NamespacedName{Namespace: "default", Name: "web"}
		put := func(uid string) *corev1.Pod {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: types.UID(uid)},
				Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "app", State: running(0)}}}}
			pods.Put(key, p)
			synctest.Wait()
			return p
		}
		first := put("1")
		r.Probed(first, "app", "Readiness", true, at(1))
		line, ok := r.Find(key)
		want := Lifeline{UID: "1", Since: began, Containers: []Container{{Name: "app",
			Instances: []Instance{{Start: at(0)}}, Probes: []Probe{{"Readiness", []Result{{at(1), true}}, at(1)}}}}}
		if diff := cmp.Diff(want, line); diff != "" || !ok {
			t.Error(diff)
		}
		put("2")
		r.Probed(first, "app", "Readiness", false, at(2)) // a probe of the pod before ends late
		if line, _ := r.Find(key); line.UID != "2" || len(line.Containers[0].Probes) != 0 {
			t.Errorf("the next pod has the lifeline %+v", line)
		}
		pods.Delete(key)
		synctest.Wait()
		r.Probed(first, "app", "Readiness", true, at(3))
		if line, ok := r.Find(key); ok {
			t.Errorf("a deleted pod has the lifeline %+v", line)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// The probes of a full node report to the recorder: 110 pods with a probe each.
func BenchmarkProbed(b *testing.B) {
	r := New(began)
	pods := make([]*corev1.Pod, 110)
	for i := range pods {
		pods[i] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint(i))}}
		r.show(types.NamespacedName{Name: pods[i].Name}, pods[i], false)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.Probed(pods[i%len(pods)], "app", "Readiness", true, began)
	}
}
