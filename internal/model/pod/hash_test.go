package pod

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// The kubelet's own test has expected these values since v1.31.
func TestContainerHashes(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Name: "test_container", Image: "foo/image:v1", Command: []string{"/bin/testcmd"}},
	}}}
	if diff := cmp.Diff(map[string]string{"test_container": "8e45cbd0"}, ContainerHashes(p)); diff != "" {
		t.Error(diff)
	}
}
