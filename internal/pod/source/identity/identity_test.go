package identity

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/pod"
)

const (
	hashA = types.UID("0123456789abcdef0123456789abcdef")
	hashB = types.UID("fedcba9876543210fedcba9876543210")
)

// asking returns the pod of a manifest whose container requests this much CPU; none if empty.
func asking(uid types.UID, image, cpu string) *pod.Pod {
	c := corev1.Container{Name: "app", Image: image}
	if cpu != "" {
		c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{c}}}
	p.UID = uid
	return &pod.Pod{Pod: p, Source: pod.SourceFile}
}

func TestRecognize(t *testing.T) {
	first := recognize(Identity{}, asking(hashA, "app:1", "100m"))
	tests := []struct {
		name   string
		was    Identity
		now    *pod.Pod
		uid    types.UID
		former []types.UID
	}{
		{"the same text", first, asking(hashA, "app:1", "100m"), hashA, nil},
		{"other resources", first, asking(hashB, "app:1", "200m"), hashA, nil},
		{"another image", first, asking(hashB, "app:2", "100m"), hashB, []types.UID{hashA}},
		{"another class", first, asking(hashB, "app:1", ""), hashB, []types.UID{hashA}},
		{"a UID of its own", first, asking("mine", "app:1", "200m"), "mine", []types.UID{hashA}},
		{"another UID of its own", recognize(Identity{}, asking("mine", "app:1", "100m")),
			asking("yours", "app:1", "200m"), "yours", []types.UID{"mine"}},
		{"the earlier image again", recognize(first, asking(hashB, "app:2", "100m")), asking(hashA, "app:1", "100m"),
			hashA, []types.UID{hashB}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := Identity{UID: tt.uid, Content: tt.now.UID, Shape: shapeOf(tt.now.Pod), Former: tt.former}
			if diff := cmp.Diff(want, recognize(tt.was, tt.now)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAdopt(t *testing.T) {
	const runs = types.UID("00000000000000000000000000000001")
	first := asking(hashA, "app:1", "100m")
	edited := asking(hashB, "app:2", "100m")
	was := recognize(Identity{}, first)
	tests := []struct {
		name   string
		was    Identity
		now    *pod.Pod
		runs   types.UID
		uid    types.UID
		former []types.UID
	}{
		{"a kubelet's", Identity{}, first, runs, runs, nil},
		{"a kubelet's again, after this agent's", was, first, runs, runs, []types.UID{hashA}},
		{"the one that it was", was, first, hashA, hashA, nil},
		{"before the manifest was edited", was, edited, hashA, hashB, []types.UID{hashA}},
		{"before an earlier agent saw the edit", recognize(was, edited), edited, hashA, hashB, []types.UID{hashA}},
		{"the manifest says who it is", Identity{}, asking("mine", "app:1", "100m"), runs, "mine", nil},
	}
	for _, tt := range tests {
		got := adopt(tt.was, recognize(tt.was, tt.now), tt.runs)
		want := Identity{UID: tt.uid, Content: tt.now.UID, Shape: shapeOf(tt.now.Pod), Former: tt.former}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// Changes made over the API count until the manifest's resources change.
func TestAmendment(t *testing.T) {
	base := asking(hashA, "app:1", "100m")
	changed := asking(hashA, "app:1", "300m").Pod
	changed.Spec.EphemeralContainers = []corev1.EphemeralContainer{
		{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
	was := recognize(Identity{}, base)
	was.Amended = amended(base.Pod, changed)

	outcome := func(p *pod.Pod) []string {
		c := p.DeepCopy()
		recognize(was, p).Amended.apply(c)
		return []string{c.Spec.Containers[0].Resources.Requests.Cpu().String(), c.Spec.EphemeralContainers[0].Name}
	}
	got := map[string][]string{"the same manifest": outcome(base),
		"another one": outcome(asking(hashB, "app:1", "200m"))}
	want := map[string][]string{"the same manifest": {"300m", "debug"}, "another one": {"200m", "debug"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The list of former UIDs does not grow for ever.
func TestFormerIsLimited(t *testing.T) {
	var i Identity
	for n := range 2 * mostFormer {
		i = recognize(i, asking(types.UID(fmt.Sprintf("%032x", n)), fmt.Sprintf("app:%d", n), ""))
	}
	if newest := types.UID(fmt.Sprintf("%032x", 2*mostFormer-2)); len(i.Former) != mostFormer ||
		i.Former[mostFormer-1] != newest {
		t.Errorf("%d former UIDs: %q, want %d up to %s", len(i.Former), i.Former, mostFormer, newest)
	}
}
