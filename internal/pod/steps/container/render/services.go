package render

import (
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apiService is the service of the API server in the namespace default. Every container gets its variables.
const apiService = "kubernetes"

// Services returns the variables with the addresses of services: of default/kubernetes, and of all services in the
// pod's namespace unless the pod sets enableServiceLinks: false. A service without an address gets none. Where two
// services produce the same variable, the one later by name wins.
func Services(p *corev1.Pod, services []*corev1.Service) map[string]string {
	linked := p.Spec.EnableServiceLinks == nil || *p.Spec.EnableServiceLinks
	chosen := map[string]*corev1.Service{}
	for _, s := range services {
		if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone || len(s.Spec.Ports) == 0 {
			continue
		}
		api := s.Namespace == metav1.NamespaceDefault && s.Name == apiService
		switch {
		case s.Namespace == p.Namespace && linked:
			chosen[s.Name] = s // even one that is named kubernetes
		case api && chosen[s.Name] == nil:
			chosen[s.Name] = s
		}
	}
	env := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(chosen)) {
		addService(env, chosen[name])
	}
	return env
}

// addService adds the variables of one service, with Kubernetes' names and with the names of Docker links.
func addService(env map[string]string, s *corev1.Service) {
	name := variableName(s.Name)
	env[name+"_SERVICE_HOST"] = s.Spec.ClusterIP
	env[name+"_SERVICE_PORT"] = strconv.Itoa(int(s.Spec.Ports[0].Port))
	for i, p := range s.Spec.Ports {
		port := strconv.Itoa(int(p.Port))
		if p.Name != "" {
			env[name+"_SERVICE_PORT_"+variableName(p.Name)] = port
		}
		protocol := p.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		lower := strings.ToLower(string(protocol))
		url := lower + "://" + net.JoinHostPort(s.Spec.ClusterIP, port)
		if i == 0 {
			env[name+"_PORT"] = url
		}
		link := name + "_PORT_" + port + "_" + strings.ToUpper(string(protocol))
		env[link] = url
		env[link+"_PROTO"] = lower
		env[link+"_PORT"] = port
		env[link+"_ADDR"] = s.Spec.ClusterIP
	}
}

func variableName(name string) string {
	return strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}
