package shutdown

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// aPod returns a pod with a name, a priority and a grace period in seconds. -1 means unset.
func aPod(name string, priority int32, grace int64) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)}}
	if priority >= 0 {
		p.Spec.Priority = &priority
	}
	if grace >= 0 {
		p.Spec.TerminationGracePeriodSeconds = &grace
	}
	return p
}

func TestDecide(t *testing.T) {
	const s = time.Second
	groups := []Group{{10, 20 * s}, {100, 5 * s}, {1000, s}}
	low, none, at, between, top := aPod("low", 3, 30), aPod("none", -1, -1), aPod("at", 100, 2),
		aPod("between", 999, 60), aPod("top", 5000, 0)
	want := []Batch{
		{groups[0], []Ending{{low, 20 * s}, {none, 20 * s}}},
		{groups[1], []Ending{{between, 5 * s}, {at, 2 * s}}},
		{groups[2], []Ending{{top, 0}}},
	}
	if diff := cmp.Diff(want, Decide(groups, []*corev1.Pod{top, low, between, none, at})); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want[2:], Decide(groups, []*corev1.Pod{top})); diff != "" {
		t.Error("decision without pods:", diff)
	}
	if total := Total(groups); total != 26*s {
		t.Errorf("total %s", total)
	}
}
