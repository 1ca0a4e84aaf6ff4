package mirror

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/berth-run/berth/internal/model/pod"
)

func staticPod(hash, cpu string) *pod.Pod {
	return &pod.Pod{Source: pod.SourceFile, Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-node", UID: "u",
			Labels: map[string]string{"app": "web"}, Annotations: map[string]string{pod.AnnotationConfigHash: hash}},
		Spec: corev1.PodSpec{
			NodeName: "node", PriorityClassName: "system-node-critical", Priority: new(int32(2000001000)),
			Containers: []corev1.Container{{Name: "app", Image: "app:1", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}},
			EphemeralContainers: []corev1.EphemeralContainer{
				{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}},
		},
	}}
}

func TestDecide(t *testing.T) {
	static := staticPod("hash", "1")
	mirror := func(change func(*corev1.Pod)) *corev1.Pod {
		p := copyOf(static, "node", "n")
		change(p)
		return p
	}
	now := metav1.Now()
	for name, test := range map[string]struct {
		static *pod.Pod
		mirror *corev1.Pod
		want   act
	}{
		"neither":   {nil, nil, nothing},
		"no mirror": {static, nil, create},
		"its own":   {static, mirror(func(*corev1.Pod) {}), nothing},
		"a kubelet's": {static, mirror(func(p *corev1.Pod) { delete(p.Annotations, annotationResources) }),
			nothing},
		"an earlier one":   {staticPod("other", "1"), mirror(func(*corev1.Pod) {}), remove},
		"other resources":  {staticPod("hash", "2"), mirror(func(*corev1.Pod) {}), remove},
		"being deleted":    {static, mirror(func(p *corev1.Pod) { p.DeletionTimestamp = &now }), remove},
		"without a static": {nil, mirror(func(*corev1.Pod) {}), remove},
	} {
		if got := decide(test.static, test.mirror); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestCopyOf(t *testing.T) {
	static := staticPod("hash", "1")
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web-node", Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{
				pod.AnnotationConfigHash: "hash", pod.AnnotationMirror: "hash",
				annotationResources: resources(static.Pod),
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "node", UID: "n",
				Controller: new(true)}},
		},
		Spec: corev1.PodSpec{NodeName: "node", PriorityClassName: "system-node-critical",
			Containers: static.Spec.Containers},
	}
	if diff := cmp.Diff(want, copyOf(static, "node", "n")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDelay(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "a", errors.New("no"))
	for _, test := range []struct {
		failures int
		err      error
		want     time.Duration
	}{
		{1, errors.New("refused"), 200 * time.Millisecond},
		{2, errors.New("refused"), 400 * time.Millisecond},
		{100, errors.New("refused"), 30 * time.Second},
		{1, fmt.Errorf("create: %w", forbidden), 2 * time.Minute},
	} {
		if got := delay(test.failures, test.err); got != test.want {
			t.Errorf("after %d failures, the last of them %v: %v, want %v", test.failures, test.err, got, test.want)
		}
	}
}
