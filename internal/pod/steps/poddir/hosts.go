package poddir

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// hosts returns the /etc/hosts of a pod on its own network.
func hosts(ips []string, n PodNames, aliases []corev1.HostAlias) string {
	var b strings.Builder
	b.WriteString("# Kubernetes-managed hosts file.\n" +
		"127.0.0.1\tlocalhost\n" +
		"::1\tlocalhost ip6-localhost ip6-loopback\n" +
		"fe00::0\tip6-localnet\n" +
		"fe00::0\tip6-mcastprefix\n" +
		"fe00::1\tip6-allnodes\n" +
		"fe00::2\tip6-allrouters\n")
	for _, ip := range ips {
		b.WriteString(ip + "\t")
		if n.Domain != "" {
			b.WriteString(n.FQDN() + "\t")
		}
		b.WriteString(n.Hostname + "\n")
	}
	writeAliases(&b, aliases)
	return b.String()
}

// hostHosts returns the /etc/hosts of a pod on the host network: the host's own lines and the pod's aliases.
func hostHosts(host string, aliases []corev1.HostAlias) string {
	var b strings.Builder
	b.WriteString("# Kubernetes-managed hosts file (host network).\n")
	b.WriteString(host)
	writeAliases(&b, aliases)
	return b.String()
}

func writeAliases(b *strings.Builder, aliases []corev1.HostAlias) {
	if len(aliases) == 0 {
		return
	}
	b.WriteString("\n# Entries added by HostAliases.\n")
	for _, a := range aliases {
		fmt.Fprintf(b, "%s\t%s\n", a.IP, strings.Join(a.Hostnames, "\t"))
	}
}
