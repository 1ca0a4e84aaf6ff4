package probe

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// hostIPs implements addresses.
type hostIPs []string

func (h hostIPs) HostIPs() []string { return h }

func TestProbesOfPodsOnTheHostNetworkGoToTheHost(t *testing.T) {
	box := &pod.Observed{Sandboxes: []pod.SandboxStatus{{Ready: true, IPs: []string{"10.0.0.2"}}}}
	host := &corev1.Pod{Spec: corev1.PodSpec{HostNetwork: true}}
	for _, test := range []struct {
		addresses addresses
		pod       *corev1.Pod
		want      string
	}{
		{hostIPs{"192.0.2.1"}, host, "192.0.2.1"},
		{hostIPs{"192.0.2.1"}, &corev1.Pod{}, "10.0.0.2"},
		{nil, &corev1.Pod{}, "10.0.0.2"},
		{nil, host, ""},
	} {
		o := Options{Addresses: test.addresses}
		if got := o.address(test.pod, box); got != test.want {
			t.Errorf("host addresses %v, host network %t: %q, want %q", test.addresses, test.pod.Spec.HostNetwork, got,
				test.want)
		}
	}
}
