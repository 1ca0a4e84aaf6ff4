package container

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/reason"
)

func TestStartsAreCounted(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init"}},
		Containers:     []corev1.Container{{Name: "app"}},
		EphemeralContainers: []corev1.EphemeralContainer{
			{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}},
	}}
	s := New(Options{})
	reg := prometheus.NewPedanticRegistry()
	if err := s.Register(reg); err != nil {
		t.Fatal(err)
	}
	s.metrics.count(p, "init", nil)
	s.metrics.count(p, "app", nil)
	s.metrics.count(p, "app", reason.Wrap(reason.RunContainerError, errors.New("no such file")))
	s.metrics.count(p, "debug", errors.New("lost"))
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP kubelet_started_containers_errors_total Cumulative number of attempts to start a container that failed, by `+
		`its type and reason.
# TYPE kubelet_started_containers_errors_total counter
kubelet_started_containers_errors_total{code="RunContainerError",container_type="container"} 1
kubelet_started_containers_errors_total{code="Unknown",container_type="ephemeral_container"} 1
# HELP kubelet_started_containers_total Cumulative number of attempts to start a container, by its type.
# TYPE kubelet_started_containers_total counter
kubelet_started_containers_total{container_type="container"} 2
kubelet_started_containers_total{container_type="ephemeral_container"} 1
kubelet_started_containers_total{container_type="init_container"} 1
`), "kubelet_started_containers_total", "kubelet_started_containers_errors_total"); err != nil {
		t.Error(err)
	}
}
