package pod

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDiffers(t *testing.T) {
	at := metav1.NewTime(time.Unix(100, 0))
	base := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"a": "b"}, DeletionTimestamp: &at,
			DeletionGracePeriodSeconds: new(int64(30))},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}}},
	}
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"nothing":          {func(*corev1.Pod) {}, false},
		"status":           {func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }, false},
		"resource version": {func(p *corev1.Pod) { p.ResourceVersion = "2" }, false},
		"finalizers":       {func(p *corev1.Pod) { p.Finalizers = []string{"example.com/a"} }, false},
		"another spelling": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1000m")
		}, false},
		"resources": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("2")
		}, true},
		"labels":      {func(p *corev1.Pod) { p.Labels = map[string]string{"a": "c"} }, true},
		"annotations": {func(p *corev1.Pod) { p.Annotations = map[string]string{"a": ""} }, true},
		"deadline":    {func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(1)) }, true},
		"tolerations": {func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Key: "a"}} }, true},
		"an ephemeral one": {func(p *corev1.Pod) {
			p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{}}
		}, true},
		"time of deletion": {func(p *corev1.Pod) {
			p.DeletionTimestamp = new(metav1.NewTime(at.Add(time.Second)))
		}, true},
		"it is not to go":      {func(p *corev1.Pod) { p.DeletionTimestamp = nil }, true},
		"grace":                {func(p *corev1.Pod) { p.DeletionGracePeriodSeconds = new(int64(0)) }, true},
		"image of a container": {func(p *corev1.Pod) { p.Spec.Containers[0].Image = "b" }, true},
	} {
		now := base.DeepCopy()
		test.change(now)
		if got := Differs(base, now); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
