package status

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/podstatus"
	"github.com/berth-run/berth/internal/pod/steps/probe"
)

func TestBefore(t *testing.T) {
	reported := func(id string, state corev1.ContainerState) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", ContainerID: "containerd://" + id, Ready: true, Started: new(true), State: state,
		}}}
	}
	down := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	up := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	b := Before{Record: NewRecord(RecordOptions{}), Desired: store.New[types.UID, *pod.Pod]()}
	for uid, p := range map[types.UID]*pod.Pod{
		"kubelet": {Source: pod.SourceAPI, Pod: &corev1.Pod{Status: reported("k1", up)}},
		"static":  {Source: pod.SourceFile, Pod: &corev1.Pod{Status: reported("s1", up)}},
		"ended": {Source: pod.SourceAPI,
			Pod: &corev1.Pod{Status: reported("e1", down)}},
	} {
		b.Desired.Put(uid, p)
	}
	updated(b.Record, podstatus.Input{Pod: newPod("u1"), Observed: observedOf(running("a1")), Node: node, Now: now,
		Probes: map[string]podstatus.Probes{"a1": {Started: true, Ready: true}}})
	for _, test := range []struct {
		uid  types.UID
		id   string
		want bool
	}{
		{"u1", "a1", true}, {"u1", "a2", false}, {"kubelet", "k1", true}, {"static", "s1", false},
		{"ended", "e1", false},
	} {
		got, ok := b.Ready(test.uid, test.id)
		if ok != test.want || got != (probe.Ready{Started: test.want, Ready: test.want}) {
			t.Errorf("%s %s: %+v, %v", test.uid, test.id, got, ok)
		}
	}
}
