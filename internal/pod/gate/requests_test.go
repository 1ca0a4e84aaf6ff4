package gate

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/pod/admission"
)

// What a pod requests is computed again when its version has changed, and is forgotten some time after the pod.
func TestRequests(t *testing.T) {
	known := requests{}
	cpu := func(p *corev1.Pod) string {
		pods := []admission.PodInfo{{Pod: p}}
		known.fill(pods)
		return fmt.Sprint(pods[0].Requests)
	}
	small, large := asking("a", "", "1").Pod, asking("a", "", "2").Pod
	if got := cpu(small); got != fmt.Sprint(admission.RequestsOf(small)) {
		t.Errorf("the first version requests %s", got)
	}
	if got := cpu(large); got != fmt.Sprint(admission.RequestsOf(large)) {
		t.Errorf("the second version requests %s", got)
	}
	var many []admission.PodInfo
	for i := range 10 {
		many = append(many, admission.PodInfo{Pod: asking(fmt.Sprint(i), "", "1").Pod})
	}
	known.fill(many)
	known.fill(nil)
	if len(known) != 11 {
		t.Errorf("%d pods are known beside no other pod, want 11", len(known))
	}
	known.fill(many[:2])
	if len(known) != 2 {
		t.Errorf("%d pods are known after most have gone, want 2", len(known))
	}
}
