package cluster

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/pod"
)

func apiPod(name string, uid types.UID, version string, annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid, ResourceVersion: version,
			Annotations: annotations},
		Spec: corev1.PodSpec{NodeName: "node"},
	}
}

// state is the visible content of a set.
type state struct {
	Pods, Mirrors []string
	Refused       map[string]string
}

func stateOf(s *Set) state {
	got := state{Refused: map[string]string{}}
	for _, c := range s.Changes() { // of the whole life of the set
		if p := c.Pod; p != nil {
			got.Pods = append(got.Pods, p.Name+" "+string(p.UID)+" "+p.ResourceVersion)
		}
	}
	for _, p := range s.Mirrors.Snapshot().All() {
		got.Mirrors = append(got.Mirrors, p.Name+" "+string(p.UID))
	}
	for _, r := range s.Refusals() {
		got.Refused[r.Name.String()] = r.Err.Error()
	}
	return got
}

func TestSet(t *testing.T) {
	at := time.Unix(100, 0)
	mirror := map[string]string{pod.AnnotationMirror: "hash"}
	elsewhere := apiPod("away", "4", "1", nil)
	elsewhere.Spec.NodeName = "other"
	for name, test := range map[string]struct {
		do   func(s *Set)
		want state
	}{
		"a list replaces all": {func(s *Set) {
			s.Replace([]*corev1.Pod{apiPod("a", "1", "1", nil), apiPod("m", "2", "1", mirror)}, at)
			s.Replace([]*corev1.Pod{apiPod("b", "3", "2", nil)}, at)
		}, state{Pods: []string{"b 3 2"}}},
		"a change": {func(s *Set) {
			s.Put(apiPod("a", "1", "1", nil), at)
			s.Put(apiPod("a", "1", "2", nil), at)
		}, state{Pods: []string{"a 1 2"}}},
		"mirrors are not run": {func(s *Set) {
			s.Put(apiPod("m", "2", "1", mirror), at)
		}, state{Mirrors: []string{"m 2"}}},
		"another mirror of that name": {func(s *Set) {
			s.Put(apiPod("m", "2", "1", mirror), at)
			s.Put(apiPod("m", "3", "2", mirror), at)
			s.Drop(apiPod("m", "2", "1", mirror))
		}, state{Mirrors: []string{"m 3"}}},
		"another pod of that name": {func(s *Set) {
			s.Put(apiPod("a", "1", "1", nil), at)
			s.Put(apiPod("a", "2", "2", nil), at)
		}, state{Pods: []string{"a 2 2"}}},
		"dropped": {func(s *Set) {
			s.Put(apiPod("a", "1", "1", nil), at)
			s.Drop(apiPod("a", "1", "1", nil))
		}, state{}},
		"not fit to run": {func(s *Set) {
			s.Put(elsewhere, at)
			s.Put(apiPod("../a", "5", "1", nil), at)
		}, state{Refused: map[string]string{
			"default/away": `pod default/away: spec.nodeName: Invalid value: "other": this node is "node"`,
			"default/../a": `pod default/../a: metadata.name: Invalid value: "../a"`,
		}}},
		"restored until it is heard": {func(s *Set) {
			s.Restore([]*corev1.Pod{apiPod("a", "1", "1", nil), apiPod("b", "2", "1", nil)}, at)
			s.Replace([]*corev1.Pod{apiPod("b", "2", "1", nil)}, at.Add(time.Minute))
			s.Restore([]*corev1.Pod{apiPod("c", "3", "1", nil)}, at)
		}, state{Pods: []string{"b 2 1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := New("node", pod.Ignored{})
			test.do(s)
			if test.want.Refused == nil {
				test.want.Refused = map[string]string{}
			}
			if diff := cmp.Diff(test.want, stateOf(s)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// An unchanged pod keeps its value. A changed pod keeps the time when it was first seen.
func TestSameValue(t *testing.T) {
	s, first := New("node", pod.Ignored{}), time.Unix(100, 0)
	was := s.Put(apiPod("a", "1", "1", nil), first)
	s.Replace([]*corev1.Pod{apiPod("a", "1", "1", nil)}, first.Add(time.Minute))
	if got := s.Changes(); len(got) != 1 || got[0].Pod != was {
		t.Errorf("the same version is %v", got)
	}
	if now := s.Put(apiPod("a", "1", "2", nil), first.Add(time.Hour)); now == was || !now.Seen.Equal(first) {
		t.Errorf("another version was seen at %v", now.Seen)
	}
}

func TestChanges(t *testing.T) {
	s, first := New("node", pod.Ignored{}), time.Unix(100, 0)
	s.Put(apiPod("b", "2", "1", nil), first.Add(time.Minute))
	s.Put(apiPod("a", "1", "1", nil), first)
	s.Put(apiPod("c", "3", "1", nil), first)
	for _, step := range []struct {
		does string
		do   func()
		want []string
	}{
		{"nothing", func() {}, []string{"1", "3", "2"}},
		{"nothing again", func() {}, nil},
		{"a drop and a change", func() {
			s.Put(apiPod("a", "1", "2", nil), first)
			s.Drop(apiPod("c", "3", "1", nil))
		}, []string{"3 is gone", "1"}},
		{"another pod of that name", func() { s.Put(apiPod("a", "4", "1", nil), first) }, []string{"1 is gone", "4"}},
		{"a pod of another node", func() {
			p := apiPod("b", "2", "2", nil)
			p.Spec.NodeName = "other"
			s.Put(p, first)
		}, []string{"2 is gone"}},
		{"a list", func() { s.Replace([]*corev1.Pod{apiPod("d", "5", "1", nil)}, first) }, []string{"4 is gone", "5"}},
	} {
		step.do()
		var got []string
		for _, c := range s.Changes() {
			if text := string(c.UID); c.Pod == nil {
				got = append(got, text+" is gone")
			} else {
				got = append(got, text)
			}
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.does, diff)
		}
	}
}

// An annotation cannot make a pod of the API look like a static pod of this node.
func TestForgedSource(t *testing.T) {
	marked := apiPod("a", "1", "1", map[string]string{pod.AnnotationConfigSource: "file", "mine": "x"})
	got := New("node", pod.Ignored{}).Put(marked, time.Unix(100, 0))
	if keys := slices.Collect(maps.Keys(got.Annotations)); pod.Static(got.Pod) ||
		!slices.Equal(keys, []string{"mine"}) {
		t.Errorf("annotations %v", got.Annotations)
	}
	if len(marked.Annotations) != 2 {
		t.Error("Put changed its argument")
	}
}
