package pod

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestWithoutClaimed(t *testing.T) {
	one := resource.MustParse("1")
	asks := func(name string, resources ...corev1.ResourceName) corev1.Container {
		c := corev1.Container{Name: name,
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}}
		for _, r := range resources {
			c.Resources.Requests[r], c.Resources.Limits[r] = one, one
		}
		return c
	}
	p := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{asks("init", "cpu", "example.com/a")},
		Containers:     []corev1.Container{asks("app", "example.com/a", "deviceclass.resource.kubernetes.io/b")},
	}}
	if WithoutClaimed(p) != p {
		t.Error("a pod without such a claim was copied")
	}
	p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
		RequestMappings: []corev1.ContainerExtendedResourceRequest{
			{ContainerName: "init", ResourceName: "example.com/a"},
			{ContainerName: "app", ResourceName: "deviceclass.resource.kubernetes.io/b"},
		}}
	before := p.DeepCopy()
	want := p.DeepCopy()
	want.Spec.InitContainers, want.Spec.Containers = []corev1.Container{asks("init", "cpu")},
		[]corev1.Container{asks("app", "example.com/a")}
	if d := cmp.Diff(want, WithoutClaimed(p)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff(before, p); d != "" {
		t.Errorf("the pod has changed (-want +got):\n%s", d)
	}
}
