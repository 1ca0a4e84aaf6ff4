package pod

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestField(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web", UID: "u1",
		Labels:      map[string]string{"tier": "front", "app": `a "b"`, "a[b]c": "x"},
		Annotations: map[string]string{"Note": "two\nlines"},
	}}
	tests := []struct{ path, want, err string }{
		{"metadata.name", "web", ""},
		{"metadata.namespace", "shop", ""},
		{"metadata.uid", "u1", ""},
		{"metadata.labels", "a[b]c=\"x\"\napp=\"a \\\"b\\\"\"\ntier=\"front\"", ""},
		{"metadata.annotations", `Note="two\nlines"`, ""},
		{"metadata.labels['tier']", "front", ""},
		{"metadata.labels['none']", "", ""},
		{"metadata.annotations['Note']", "two\nlines", ""},
		{"metadata.labels['a b']", "", "invalid key subscript in metadata.labels['a b']"},
		{"spec.nodeName['x']", "", `fieldPath "spec.nodeName['x']" does not support subscript`},
		{"spec.nodeName", "", "unsupported fieldPath: spec.nodeName"},
	}
	for _, test := range tests {
		got, err := Field(p, test.path)
		if got != test.want || !says(err, test.err) {
			t.Errorf("%s: %q, %v, want %q, %q", test.path, got, err, test.want, test.err)
		}
	}
	if got, err := Field(&corev1.Pod{}, "metadata.labels"); got != "" || err != nil {
		t.Errorf("no labels: %q, %v", got, err)
	}
}

func TestResourceField(t *testing.T) {
	list := func(pairs ...string) corev1.ResourceList {
		l := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return l
	}
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Name: "app", Resources: corev1.ResourceRequirements{
			Requests: list("cpu", "250m", "hugepages-2Mi", "4Mi"),
			Limits:   list("memory", "65Mi", "hugepages-2Mi", "4Mi"),
		}},
		{Name: "bare"},
	}, EphemeralContainers: []corev1.EphemeralContainer{
		{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}}}
	node := list("cpu", "4", "memory", "8Gi")
	tests := []struct{ container, resource, divisor, want, err string }{
		{"app", "requests.cpu", "", "1", ""},
		{"app", "requests.cpu", "1m", "250", ""},
		{"app", "limits.cpu", "1m", "4000", ""},
		{"app", "limits.memory", "10Mi", "7", ""},
		{"app", "requests.memory", "", "0", ""},
		{"app", "limits.hugepages-2Mi", "2Mi", "2", ""},
		{"bare", "limits.memory", "1Gi", "8", ""},
		{"bare", "limits.hugepages-2Mi", "", "0", ""},
		{"", "limits.memory", "1Mi", "65", ""},
		{"none", "limits.memory", "", "", "container none not found"},
		{"debug", "limits.memory", "", "", "container debug not found"},
		{"app", "limits.gpu", "", "", "unsupported container resource: limits.gpu"},
		{"app", "cpu", "", "", "unsupported container resource: cpu"},
	}
	c, _ := FindContainer(p, "app")
	for _, test := range tests {
		f := &corev1.ResourceFieldSelector{ContainerName: test.container, Resource: test.resource}
		if test.divisor != "" {
			f.Divisor = resource.MustParse(test.divisor)
		}
		if got, err := ResourceField(p, c, f, node); got != test.want || !says(err, test.err) {
			t.Errorf("%+v: %q, %v", test, got, err)
		}
	}
	p.Spec.Resources = &corev1.ResourceRequirements{Limits: list("memory", "1Gi")}
	if got, err := ResourceField(p, c,
		&corev1.ResourceFieldSelector{ContainerName: "bare", Resource: "limits.memory",
			Divisor: resource.MustParse("1Mi")}, node); got != "1024" || err != nil {
		t.Errorf("limit of the pod: %q, %v", got, err)
	}
}

// says checks that an error has this text, or that it is nil if text is empty.
func says(err error, text string) bool {
	if text == "" {
		return err == nil
	}
	return err != nil && strings.Contains(err.Error(), text)
}
