package image

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
)

func TestSizeClass(t *testing.T) {
	for size, want := range map[uint64]string{0: "N/A", 1: "0-10MB", 10 << 20: "0-10MB", 10<<20 + 1: "10MB-100MB",
		2 << 30: "1GB-5GB", 200 << 30: "GT100GB"} {
		if got := sizeClass(size); got != want {
			t.Errorf("%d: %s, want %s", size, got, want)
		}
	}
}

func TestRequestsAreCountedByPolicy(t *testing.T) {
	n := newNode(t, 0)
	for _, p := range []*corev1.Pod{
		podOf("a", remote, corev1.PullAlways), podOf("b", remote, corev1.PullIfNotPresent),
		podOf("c", "registry.test/none:1", corev1.PullNever),
	} {
		_, _ = n.ensure(t, p) // the last one fails
	}
	reg := prometheus.NewRegistry()
	if err := n.Register(reg); err != nil {
		t.Fatal(err)
	}
	const name = "kubelet_image_manager_ensure_image_requests_total"
	want := `
# HELP kubelet_image_manager_ensure_image_requests_total ` +
		`Number of requests for the image of a container or a volume, by whether it was present and was pulled.
# TYPE kubelet_image_manager_ensure_image_requests_total counter
kubelet_image_manager_ensure_image_requests_total{present_locally="false",pull_policy="never",pull_required="unknown"} 1
kubelet_image_manager_ensure_image_requests_total{present_locally="true",pull_policy="ifnotpresent",` +
		`pull_required="false"} 1
kubelet_image_manager_ensure_image_requests_total{present_locally="unknown",pull_policy="always",pull_required="true"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), name); err != nil {
		t.Error(err)
	}
}
