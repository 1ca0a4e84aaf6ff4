package emptydir

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestTmpfsSize(t *testing.T) {
	q := func(s string) *resource.Quantity { return new(resource.MustParse(s)) }
	tests := map[string]struct {
		limit            *resource.Quantity
		pod, allocatable int64
		want             int64
	}{
		"nothing says":           {nil, 0, 0, 0},
		"the node":               {nil, 0, 100, 100},
		"the pod below the node": {nil, 50, 100, 50},
		"the pod above the node": {nil, 200, 100, 100},
		"the volume":             {q("30"), 50, 100, 30},
		"the volume above all":   {q("300"), 50, 100, 50},
		"a limit of 0 is none":   {q("0"), 50, 100, 50},
		"the volume alone":       {q("1Mi"), 0, 0, 1 << 20},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tmpfsSize(test.limit, test.pod, test.allocatable); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func requesting(sizes ...string) *corev1.Pod {
	p := &corev1.Pod{}
	for i, size := range sizes {
		c := corev1.Container{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceName("hugepages-" + size): resource.MustParse("4Mi"), "cpu": resource.MustParse("1"),
		}}}
		if i == 0 {
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		} else {
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	return p
}

func TestPageSize(t *testing.T) {
	ofThePod := &corev1.Pod{
		Spec: corev1.PodSpec{
			Resources: &corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"hugepages-2Mi": resource.MustParse("4Mi")}}}}
	tests := []struct {
		medium corev1.StorageMedium
		pod    *corev1.Pod
		want   int64
		err    string
	}{
		{"HugePages", requesting("2Mi"), 2 << 20, ""},
		{"HugePages", requesting("2Mi", "2Mi"), 2 << 20, ""},
		{"HugePages", requesting("2Mi", "1Gi"), 0, "multiple huge page sizes"},
		{"HugePages", ofThePod, 2 << 20, ""},
		{"HugePages", requesting(), 0, "no resource request for huge pages"},
		{"HugePages-1Gi", requesting("2Mi", "1Gi"), 1 << 30, ""},
		{"HugePages-1Gi", requesting("2Mi"), 0, "no resource request for huge pages of that size"},
		{"HugePages-big", requesting("2Mi"), 0, `"big" is not a page size`},
	}
	for _, test := range tests {
		got, err := pageSize(test.pod, test.medium)
		if got != test.want || (test.err == "") != (err == nil) ||
			err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: got %d, %v, want %d, %q", test.medium, got, err, test.want, test.err)
		}
	}
}
