package pod

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestIPs(t *testing.T) {
	dual := []string{"10.0.0.7", "fd00::7"}
	for title, tt := range map[string]struct {
		hostNetwork           bool
		sandbox, host, expect []string
	}{
		"IPv4 first":                 {false, dual, []string{"192.0.2.1", "2001:db8::1"}, dual},
		"IPv6 first, as on the host": {false, dual, []string{"2001:db8::1"}, []string{"fd00::7", "10.0.0.7"}},
		"a host without addresses":   {false, dual, nil, dual},
		"first of each, in canonical form": {false,
			[]string{"::ffff:10.0.0.7", "10.0.0.8", "FD00:0::7", "junk"}, nil, dual},
		"on the host's network": {true, dual, []string{"2001:db8::1"}, []string{"2001:db8::1"}},
		"no sandbox":            {false, nil, []string{"192.0.2.1"}, nil},
	} {
		t.Run(title, func(t *testing.T) {
			p := &corev1.Pod{Spec: corev1.PodSpec{HostNetwork: tt.hostNetwork}}
			if diff := cmp.Diff(tt.expect, IPs(p, tt.sandbox, tt.host)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
