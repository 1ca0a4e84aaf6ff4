package poddir

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

func named(name string, spec corev1.PodSpec) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "u1"}, Spec: spec}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("a", 62)
	tests := map[string]struct {
		pod    *corev1.Pod
		want   PodNames
		kernel string // the host name in the UTS namespace
		err    string
	}{
		"its own name": {named("web-0", corev1.PodSpec{}), PodNames{"web-0", ""}, "web-0", ""},
		"hostname":     {named("web-0", corev1.PodSpec{Hostname: "db"}), PodNames{"db", ""}, "db", ""},
		"subdomain": {named("web-0", corev1.PodSpec{Hostname: "db", Subdomain: "sub"}),
			PodNames{"db", "sub.ns.svc.cluster.local"}, "db", ""},
		"as FQDN": {named("web-0", corev1.PodSpec{Subdomain: "sub", SetHostnameAsFQDN: new(true)}),
			PodNames{"web-0", "sub.ns.svc.cluster.local"}, "web-0.sub.ns.svc.cluster.local", ""},
		"as FQDN without one": {named("web-0", corev1.PodSpec{SetHostnameAsFQDN: new(true)}), PodNames{"web-0", ""},
			"web-0", ""},
		"FQDN too long": {named(strings.Repeat("a", 40),
			corev1.PodSpec{Subdomain: "sub", SetHostnameAsFQDN: new(true)}),
			PodNames{strings.Repeat("a", 40), "sub.ns.svc.cluster.local"}, "",
			"is too long (64 characters is the max, 65 characters requested)"},
		"a long name is cut": {named(long+"-b", corev1.PodSpec{}), PodNames{long, ""}, long, ""},
		"override": {named("web-0",
			corev1.PodSpec{HostnameOverride: new("host.example.com"), Hostname: "db", Subdomain: "sub"}),
			PodNames{"host.example.com", ""}, "host.example.com", ""},
		"no override": {named("web-0", corev1.PodSpec{HostnameOverride: new("")}), PodNames{}, "",
			"hostnameOverride"},
		"override too long": {named("web-0", corev1.PodSpec{HostnameOverride: new(long + ".abc")}), PodNames{}, "",
			"too long (64 characters is the max, 66"},
		"override, no name": {named("web-0", corev1.PodSpec{HostnameOverride: new("a_b")}), PodNames{}, "",
			`hostnameOverride "a_b" is not a valid DNS subdomain`},
		"hostname, no label": {named("web-0", corev1.PodSpec{Hostname: "a.b"}), PodNames{}, "",
			`hostname "a.b" is not a valid DNS label`},
		"subdomain, no label": {named("web-0", corev1.PodSpec{Subdomain: "-"}), PodNames{}, "",
			`subdomain "-" is not a valid DNS label`},
		"a name of nothing": {named(strings.Repeat("-", 70), corev1.PodSpec{}), PodNames{}, "",
			"no host name is left"},
		"the host's network": {named("web-0", corev1.PodSpec{HostNetwork: true}), PodNames{"web-0", ""}, "", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, _ := Names(test.pod, "cluster.local")
			if got != test.want {
				t.Errorf("names = %+v, want %+v", got, test.want)
			}
			kernel, err := New(Config{Resolver: Resolver{ClusterDomain: "cluster.local"}}).Hostname(test.pod)
			if kernel != test.kernel || (err == nil) != (test.err == "") ||
				err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("hostname = %q, %v, want %q, %q", kernel, err, test.kernel, test.err)
			}
		})
	}
}

func TestHostsContent(t *testing.T) {
	aliases := []corev1.HostAlias{{IP: "203.0.113.1", Hostnames: []string{"foo", "bar.example.com"}},
		{IP: "2001:db8::1", Hostnames: []string{"baz"}}}
	head := `# Kubernetes-managed hosts file.
127.0.0.1	localhost
::1	localhost ip6-localhost ip6-loopback
fe00::0	ip6-localnet
fe00::0	ip6-mcastprefix
fe00::1	ip6-allnodes
fe00::2	ip6-allrouters
`
	added := `
# Entries added by HostAliases.
203.0.113.1	foo	bar.example.com
2001:db8::1	baz
`
	tests := map[string]struct{ got, want string }{
		"one address": {hosts([]string{"10.0.0.5"}, PodNames{"web", ""}, nil), head + "10.0.0.5\tweb\n"},
		"dual-stack with a domain and aliases": {
			hosts([]string{"10.0.0.5", "fd00::5"}, PodNames{"web", "sub.ns.svc.cluster.local"}, aliases),
			head + "10.0.0.5\tweb.sub.ns.svc.cluster.local\tweb\nfd00::5\tweb.sub.ns.svc.cluster.local\tweb\n" + added,
		},
		"host network": {hostHosts("127.0.0.1 localhost\n", nil),
			"# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n"},
		"host network and aliases": {hostHosts("127.0.0.1 localhost\n", aliases),
			"# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n" + added},
	}
	for name, test := range tests {
		if test.got != test.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, test.got, test.want)
		}
	}
}

// The entries of a pod can be read back from /etc/hosts, whatever the host's file contains. The host's lines stay
// unchanged.
func FuzzHosts(f *testing.F) {
	f.Add("127.0.0.1 localhost", "203.0.113.1", "foo bar.example.com")
	f.Add("", "2001:db8::1", "baz")
	f.Add("# no line feed at the end\n10.0.0.1 x", "::ffff:1.2.3.4", "a")
	f.Fuzz(func(t *testing.T, host, ip, names string) {
		alias := corev1.HostAlias{IP: ip, Hostnames: strings.Fields(names)}
		valid := func(name string) bool { return len(validation.IsDNS1123Subdomain(name)) == 0 }
		if _, err := netip.ParseAddr(ip); err != nil || strings.Contains(ip, "%") || len(alias.Hostnames) == 0 ||
			slices.ContainsFunc(alias.Hostnames, func(n string) bool { return !valid(n) }) {
			t.Skip("not let in by the manifest's checks")
		}
		for _, text := range []string{hosts([]string{"10.0.0.5"}, PodNames{"web", "sub"}, []corev1.HostAlias{alias}),
			hostHosts(host, []corev1.HostAlias{alias})} {
			lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
			if d := cmp.Diff(append([]string{ip}, alias.Hostnames...), strings.Fields(lines[len(lines)-1])); d != "" {
				t.Errorf("the last line (-want +got):\n%s", d)
			}
		}
		if text := hostHosts(host, []corev1.HostAlias{alias}); !strings.Contains(text, "(host network).\n"+host+"\n") {
			t.Errorf("the host's own lines were changed: %q", text)
		}
	})
}

// The kernel accepts every pod's host name, or an error says why not.
func FuzzNames(f *testing.F) {
	f.Add("web-0", "", "", "", "cluster.local", false)
	f.Add(strings.Repeat("a", 253), "db", "group", "", "cluster.local", true)
	f.Add("web", "", "", "made.up.example.com", "", false)
	f.Fuzz(func(t *testing.T, name, hostname, subdomain, override, domain string, fqdn bool) {
		p := named(name, corev1.PodSpec{Hostname: hostname, Subdomain: subdomain, SetHostnameAsFQDN: &fqdn})
		if override != "" {
			p.Spec.HostnameOverride = &override
		}
		got, err := New(Config{Resolver: Resolver{ClusterDomain: domain}}).Hostname(p)
		if err == nil && (got == "" || len(got) > maxKernelHostname) {
			t.Errorf("host name %q", got)
		}
	})
}

func TestHostnameOverrideBehindItsGate(t *testing.T) {
	p := named("web-0", corev1.PodSpec{HostnameOverride: new("host.example.com")})
	for off, want := range map[bool]string{false: "host.example.com", true: "web-0"} {
		got, err := New(Config{NoHostnameOverride: off}).Hostname(p)
		if err != nil || got != want {
			t.Errorf("gate off %t: host name %q, %v; want %q", off, got, err, want)
		}
	}
}
