package poddir

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// Limits of resolv.conf(5) and of Kubernetes (KEP-2595).
const (
	maxNameservers = 3
	maxSearches    = 32
	maxSearchChars = 2048
	maxSearchName  = validation.DNS1123SubdomainMaxLength
)

// Warning is an event about a part of a pod's DNS configuration that was left out.
type Warning struct{ Reason, Message string }

// Reasons of a Warning.
const (
	DNSConfigForming  = "DNSConfigForming"
	MissingClusterDNS = "MissingClusterDNS"
)

// missingClusterDNS is the message of a Warning, in the kubelet's words.
const missingClusterDNS = `kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" ` +
	`policy. Falling back to "Default" policy.`

// Resolver has the node's DNS settings.
type Resolver struct {
	// ClusterDNS and ClusterDomain are the cluster's. They are empty outside of a cluster.
	ClusterDNS    []netip.Addr
	ClusterDomain string
	// Standalone is set on a node without a cluster. Such a node needs no warning that ClusterFirst means Default.
	Standalone bool
	// NodeIPs show which address families a node without a resolv.conf has.
	NodeIPs []netip.Addr
}

// PodDNS decides a pod's resolv.conf. host is the node's configuration. If it is nil, the pod gets its own loopback
// address as nameserver.
func PodDNS(p *corev1.Pod, r Resolver, host *runtimeapi.DNSConfig) (*runtimeapi.DNSConfig, []Warning) {
	var warnings []Warning
	policy := p.Spec.DNSPolicy
	if policy == corev1.DNSClusterFirstWithHostNet || policy == corev1.DNSClusterFirst && !pod.HostNetwork(p) {
		if len(r.ClusterDNS) == 0 {
			if !r.Standalone {
				warnings = append(warnings, Warning{MissingClusterDNS, missingClusterDNS})
			}
			policy = corev1.DNSDefault
		}
	} else if policy != corev1.DNSNone {
		policy = corev1.DNSDefault
	}
	c := &runtimeapi.DNSConfig{}
	switch {
	case policy == corev1.DNSNone:
	case policy != corev1.DNSDefault:
		for _, ip := range r.ClusterDNS {
			c.Servers = append(c.Servers, ip.String())
		}
		c.Searches = clusterSearches(p.Namespace, r.ClusterDomain)
		if host != nil {
			c.Searches = unique(append(c.Searches, host.Searches...))
		}
		c.Options = []string{"ndots:5"}
	case host == nil:
		c.Servers, c.Searches = loopback(r.NodeIPs), []string{"."}
	default:
		c.Servers, c.Searches, c.Options = slices.Clone(host.Servers), slices.Clone(host.Searches),
			slices.Clone(host.Options)
	}
	if d := p.Spec.DNSConfig; d != nil {
		c.Servers = unique(append(c.Servers, d.Nameservers...))
		c.Searches = unique(append(c.Searches, d.Searches...))
		c.Options = mergeOptions(c.Options, d.Options)
	}
	return c, append(warnings, fit(c)...)
}

func clusterSearches(namespace, domain string) []string {
	if domain == "" {
		return nil
	}
	return []string{namespace + ".svc." + domain, "svc." + domain, domain}
}

// loopback returns the nameservers that resolv.conf(5) uses when none is configured.
func loopback(ips []netip.Addr) []string {
	var servers []string
	for _, ip := range ips {
		if ip.Is4() || ip.Is4In6() {
			servers = append(servers, "127.0.0.1")
		} else {
			servers = append(servers, "::1")
		}
	}
	if len(servers) == 0 {
		return []string{"127.0.0.1"}
	}
	return unique(servers)
}

// unique keeps the first of equal strings.
func unique(list []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool {
		duplicate := seen[s]
		seen[s] = true
		return duplicate
	})
}

// mergeOptions adds the pod's options to the others. An option that exists already gets the pod's value and keeps its
// place.
func mergeOptions(options []string, over []corev1.PodDNSConfigOption) []string {
	merged := slices.Clone(options)
	for _, o := range over {
		text := o.Name
		if o.Value != nil && *o.Value != "" {
			text += ":" + *o.Value
		}
		same := func(s string) bool { name, _, _ := strings.Cut(s, ":"); return name == o.Name }
		if i := slices.IndexFunc(merged, same); i >= 0 {
			merged[i] = text
		} else {
			merged = append(merged, text)
		}
	}
	return merged
}

// fit cuts off entries beyond the limits of resolvers, from the end, and returns a warning for each cut.
func fit(c *runtimeapi.DNSConfig) []Warning {
	var warnings []Warning
	if len(c.Servers) > maxNameservers {
		c.Servers = c.Servers[:maxNameservers]
		warnings = append(warnings, Warning{DNSConfigForming,
			"Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: " +
				strings.Join(c.Servers, " ")})
	}
	all := len(c.Searches)
	c.Searches = c.Searches[:min(all, maxSearches)]
	c.Searches = slices.DeleteFunc(c.Searches, func(s string) bool { return len(s) > maxSearchName })
	for len(strings.Join(c.Searches, " ")) > maxSearchChars {
		c.Searches = c.Searches[:len(c.Searches)-1]
	}
	if len(c.Searches) < all {
		warnings = append(warnings, Warning{DNSConfigForming,
			"Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " +
				strings.Join(c.Searches, " ")})
	}
	return warnings
}

// CheckResolvConf returns why pods cannot get all search domains of the host's file, in the kubelet's words. It returns
// "" if they can, or if path is empty. The domains of a cluster take three places.
func CheckResolvConf(path, clusterDomain string) string {
	if path == "" {
		return ""
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	searches, places := parseResolvConf(string(text)).Searches, maxSearches
	if clusterDomain != "" {
		places -= 3
	}
	switch {
	case len(searches) > places:
		return fmt.Sprintf("Resolv.conf file '%s' contains search line consisting of more than %d domains!", path,
			places)
	case slices.ContainsFunc(searches, func(s string) bool { return len(s) > maxSearchName }):
		return fmt.Sprintf("Resolv.conf file %q contains a search path which length is more than allowed %d chars!",
			path, maxSearchName)
	case len(strings.Join(searches, " ")) > maxSearchChars:
		return fmt.Sprintf("Resolv.conf file '%s' contains search line which length is more than allowed %d chars!",
			path, maxSearchChars)
	}
	return ""
}

// parseResolvConf reads resolv.conf(5). The last search line and the last value of an option win.
func parseResolvConf(text string) *runtimeapi.DNSConfig {
	c := &runtimeapi.DNSConfig{}
	for line := range strings.Lines(text) {
		if i := strings.IndexAny(line, "#;"); i >= 0 {
			line = line[:i]
		}
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			c.Servers = append(c.Servers, fields[1])
		case "search":
			c.Searches = nil
			for _, s := range fields[1:] {
				c.Searches = append(c.Searches, cmp.Or(strings.TrimRight(s, "."), "."))
			}
		case "options":
			for _, o := range fields[1:] {
				name, value, hasValue := strings.Cut(o, ":")
				if name == "" {
					continue
				}
				option := corev1.PodDNSConfigOption{Name: name}
				if hasValue {
					option.Value = &value
				}
				c.Options = mergeOptions(c.Options, []corev1.PodDNSConfigOption{option})
			}
		}
	}
	return c
}

// onlyLoopback reports whether every nameserver is on the host itself, such as the stub of systemd-resolved. A pod on
// its own network cannot reach those.
func onlyLoopback(servers []string) bool {
	return len(servers) > 0 && !slices.ContainsFunc(servers, func(s string) bool {
		ip, err := netip.ParseAddr(s)
		return err != nil || !ip.IsLoopback()
	})
}
