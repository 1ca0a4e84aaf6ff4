package source

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/source/contest"
	"github.com/berth-run/berth/internal/pod/source/manifest/manifesttest"
)

func TestRefusals(t *testing.T) {
	c := contest.New[slot, *pod.Pod]()
	for _, p := range []*pod.Pod{
		manifesttest.Pod("a", "1", "f"), manifesttest.Pod("a", "2", "g"), manifesttest.Pod("b", "1", "h"),
		manifesttest.Pod("c", "3", "i"),
	} {
		c.Put(p.Origin, podClaim(p, podOfManifest))
	}
	var texts []string
	for _, l := range c.Lost() {
		texts = append(texts, refusal(l).Err.Error())
	}
	want := []string{
		"FailedValidation: g: pod default/a is already defined by f: rename it, or remove one of the two",
		"FailedValidation: h: pod default/b has the UID 1 of pod default/a (f): remove metadata.uid",
	}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func requests(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func TestInPlace(t *testing.T) {
	tests := []struct {
		name string
		edit func(*corev1.Pod)
		want bool
	}{
		{"nothing", func(*corev1.Pod) {}, true},
		{"labels", func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }, true},
		{"image and its pull policy", func(p *corev1.Pod) {
			p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = "b", "Always"
		}, true},
		{"deadline", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64) }, true},
		{"tolerations", func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Key: "k"}} }, true},
		{"command", func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"x"} }, false},
		{"another container", func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "b"})
		}, false},
		{"memory, the same class", func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = requests("memory", "2Mi")
		}, true},
		{"memory of the pod as a whole", func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: requests("memory", "2Mi")}
		}, true},
		{"huge pages of the pod as a whole", func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: requests("memory", "2Mi", "hugepages-2Mi", "2Mi")}
		}, false},
		{"another class", func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = nil }, false},
		{"another resource", func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = requests("memory", "1Mi", "example.com/gpu", "1")
		}, false},
		{"an ephemeral container", func(p *corev1.Pod) {
			p.Spec.EphemeralContainers = make([]corev1.EphemeralContainer, 1)
		}, true},
		{"restart policy", func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			was := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
			was.Spec.Containers[0].Resources.Requests = requests("memory", "1Mi")
			now := was.DeepCopy()
			tt.edit(now)
			if got := inPlace(was, now); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
