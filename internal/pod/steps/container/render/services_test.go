package render

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func service(namespace, name, ip string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.ServiceSpec{ClusterIP: ip, Ports: ports}}
}

func TestServices(t *testing.T) {
	https, dns := corev1.ServicePort{Name: "https", Port: 443, Protocol: corev1.ProtocolTCP},
		corev1.ServicePort{Name: "dns-udp", Port: 53, Protocol: corev1.ProtocolUDP}
	all := []*corev1.Service{
		service("default", "kubernetes", "10.0.0.1", https),
		service("default", "other", "10.0.0.2", https),
		service("app", "my-db", "fd00::5", corev1.ServicePort{Port: 5432}, dns),
		service("app", "headless", corev1.ClusterIPNone, https),
		service("app", "external", ""),
	}
	api := map[string]string{
		"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443", "KUBERNETES_SERVICE_PORT_HTTPS": "443",
		"KUBERNETES_PORT": "tcp://10.0.0.1:443", "KUBERNETES_PORT_443_TCP": "tcp://10.0.0.1:443",
		"KUBERNETES_PORT_443_TCP_PROTO": "tcp",
		"KUBERNETES_PORT_443_TCP_PORT":  "443", "KUBERNETES_PORT_443_TCP_ADDR": "10.0.0.1",
	}
	linked := map[string]string{
		"MY_DB_SERVICE_HOST": "fd00::5", "MY_DB_SERVICE_PORT": "5432", "MY_DB_SERVICE_PORT_DNS_UDP": "53",
		"MY_DB_PORT": "tcp://[fd00::5]:5432", "MY_DB_PORT_5432_TCP": "tcp://[fd00::5]:5432",
		"MY_DB_PORT_5432_TCP_PROTO": "tcp",
		"MY_DB_PORT_5432_TCP_PORT":  "5432", "MY_DB_PORT_5432_TCP_ADDR": "fd00::5",
		"MY_DB_PORT_53_UDP": "udp://[fd00::5]:53", "MY_DB_PORT_53_UDP_PROTO": "udp", "MY_DB_PORT_53_UDP_PORT": "53",
		"MY_DB_PORT_53_UDP_ADDR": "fd00::5",
	}
	for name, value := range api {
		linked[name] = value
	}
	own := map[string]string{
		"KUBERNETES_SERVICE_HOST": "10.0.0.9", "KUBERNETES_SERVICE_PORT": "1", "KUBERNETES_PORT": "tcp://10.0.0.9:1",
		"KUBERNETES_PORT_1_TCP":       "tcp://10.0.0.9:1",
		"KUBERNETES_PORT_1_TCP_PROTO": "tcp", "KUBERNETES_PORT_1_TCP_PORT": "1",
		"KUBERNETES_PORT_1_TCP_ADDR": "10.0.0.9",
	}
	tests := map[string]struct {
		links    *bool
		services []*corev1.Service
		want     map[string]string
	}{
		"linked":     {nil, all, linked},
		"not linked": {new(false), all, api},
		"one of that name": {new(true),
			[]*corev1.Service{all[0], service("app", "kubernetes", "10.0.0.9", corev1.ServicePort{Port: 1})}, own},
		"none": {nil, nil, map[string]string{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "app"},
				Spec: corev1.PodSpec{EnableServiceLinks: test.links}}
			if d := cmp.Diff(test.want, Services(p, test.services)); d != "" {
				t.Errorf("variables (-want +got):\n%s", d)
			}
		})
	}
}
