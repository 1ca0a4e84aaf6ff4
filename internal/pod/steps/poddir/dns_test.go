package poddir

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func dns(servers, searches, options string) *runtimeapi.DNSConfig {
	return &runtimeapi.DNSConfig{Servers: strings.Fields(servers), Searches: strings.Fields(searches),
		Options: strings.Fields(options)}
}

// words returns a configuration in a form that can be compared.
func words(c *runtimeapi.DNSConfig) [3]string {
	return [3]string{strings.Join(c.Servers, " "), strings.Join(c.Searches, " "), strings.Join(c.Options, " ")}
}

func TestPodDNS(t *testing.T) {
	host := dns("192.0.2.53", "example.com", "timeout:1 rotate")
	joined := Resolver{ClusterDNS: []netip.Addr{netip.MustParseAddr("10.96.0.10")}, ClusterDomain: "cluster.local"}
	cluster := dns("10.96.0.10", "ns.svc.cluster.local svc.cluster.local cluster.local example.com", "ndots:5")
	tests := map[string]struct {
		spec     corev1.PodSpec
		resolver Resolver
		host     *runtimeapi.DNSConfig
		want     *runtimeapi.DNSConfig
		warning  string // the reason of the only warning
	}{
		"Default": {corev1.PodSpec{DNSPolicy: "Default"}, joined, host, host, ""},
		"ClusterFirst": {corev1.PodSpec{DNSPolicy: "ClusterFirst"}, joined, host, cluster,
			""},
		"ClusterFirst on the host's network": {corev1.PodSpec{DNSPolicy: "ClusterFirst", HostNetwork: true}, joined,
			host, host, ""},
		"ClusterFirstWithHostNet": {corev1.PodSpec{DNSPolicy: "ClusterFirstWithHostNet",
			HostNetwork: true}, joined, host, cluster, ""},
		"ClusterFirst without a cluster": {corev1.PodSpec{DNSPolicy: "ClusterFirst"}, Resolver{}, host, host,
			MissingClusterDNS},
		"ClusterFirst on a standalone node": {corev1.PodSpec{DNSPolicy: "ClusterFirst"},
			Resolver{Standalone: true}, host, host, ""},
		"ClusterFirst of a cluster with no name": {corev1.PodSpec{DNSPolicy: "ClusterFirst"},
			Resolver{ClusterDNS: joined.ClusterDNS}, host, dns("10.96.0.10", "example.com", "ndots:5"), ""},
		"ClusterFirst, nothing from the host": {corev1.PodSpec{DNSPolicy: "ClusterFirst"}, joined, nil,
			dns("10.96.0.10", "ns.svc.cluster.local svc.cluster.local cluster.local", "ndots:5"), ""},
		"Default, nothing from the host": {corev1.PodSpec{DNSPolicy: "Default"}, Resolver{}, nil,
			dns("127.0.0.1", ".", ""), ""},
		"Default, nothing on a dual-stack host": {corev1.PodSpec{DNSPolicy: "Default"},
			Resolver{NodeIPs: []netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("192.0.2.1")}}, nil,
			dns("::1 127.0.0.1", ".", ""), ""},
		"None": {corev1.PodSpec{DNSPolicy: "None",
			DNSConfig: &corev1.PodDNSConfig{Nameservers: []string{"203.0.113.1"}, Searches: []string{"a.b"},
				Options: []corev1.PodDNSConfigOption{{Name: "edns0"}, {Name: "ndots", Value: new("2")}}}}, joined, host,
			dns("203.0.113.1", "a.b", "edns0 ndots:2"), ""},
		"dnsConfig over the cluster's": {corev1.PodSpec{DNSPolicy: "ClusterFirst", DNSConfig: &corev1.PodDNSConfig{
			Nameservers: []string{"10.96.0.10", "203.0.113.1"}, Searches: []string{"example.com", "a.b"},
			Options: []corev1.PodDNSConfigOption{{Name: "edns0"}, {Name: "ndots", Value: new("2")}}}}, joined, host,
			dns("10.96.0.10 203.0.113.1", "ns.svc.cluster.local svc.cluster.local cluster.local example.com a.b",
				"ndots:2 edns0"), ""},
		"dnsConfig over the host's": {corev1.PodSpec{DNSPolicy: "Default", DNSConfig: &corev1.PodDNSConfig{
			Options: []corev1.PodDNSConfigOption{{Name: "rotate"}, {Name: "timeout", Value: new("3")}}}}, joined, host,
			dns("192.0.2.53", "example.com", "timeout:3 rotate"), ""},
		"too many nameservers": {corev1.PodSpec{DNSPolicy: "Default",
			DNSConfig: &corev1.PodDNSConfig{Nameservers: strings.Fields("192.0.2.1 192.0.2.2 192.0.2.3")}}, joined,
			host,
			dns("192.0.2.53 192.0.2.1 192.0.2.2", "example.com", "timeout:1 rotate"), DNSConfigForming},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := words(host)
			got, warnings := PodDNS(named("web", test.spec), test.resolver, test.host)
			if d := cmp.Diff(words(test.want), words(got)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			reason := ""
			for _, w := range warnings {
				reason += w.Reason
			}
			if reason != test.warning {
				t.Errorf("warnings %v, want %q", warnings, test.warning)
			}
			if words(host) != before {
				t.Error("the host's configuration was changed")
			}
		})
	}
}

func TestSearchLimits(t *testing.T) {
	number := func(n, length int) []string {
		var all []string
		for i := range n {
			s := strconv.Itoa(i)
			all = append(all, s+strings.Repeat("x", length-len(s)))
		}
		return all
	}
	tests := map[string]struct {
		searches []string
		want     int
	}{
		"all that fit":                  {number(32, 10), 32},
		"one too many":                  {number(33, 10), 32},
		"2048 characters with spaces":   {number(8, 255-7), 8}, // 8*248+7 = 1991
		"more characters":               {number(9, 250), 8},   // 8*250+7 = 2007
		"a name that no resolver takes": {append(number(2, 10), strings.Repeat("y", 254)), 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := &runtimeapi.DNSConfig{Searches: test.searches}
			warnings := fit(c)
			if d := cmp.Diff(number(test.want, len(test.searches[0])), c.Searches, cmpopts.EquateEmpty()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if cut := len(test.searches) > test.want; (len(warnings) == 1) != cut {
				t.Errorf("warnings %v, cut %v", warnings, cut)
			}
		})
	}
}

func TestParseResolvConf(t *testing.T) {
	tests := map[string]struct {
		text string
		want *runtimeapi.DNSConfig
	}{
		"empty": {"", dns("", "", "")},
		"all of it": {`# made by hand
; another comment
domain ignored.example
nameserver 192.0.2.1 # the first
nameserver	fe80::1%eth0
search a.example. b.example
search c.example. .
options ndots:1 rotate
options ndots:3
nameserver
unknown x`, dns("192.0.2.1 fe80::1%eth0", "c.example .", "ndots:3 rotate")},
	}
	for name, test := range tests {
		if d := cmp.Diff(words(test.want), words(parseResolvConf(test.text))); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

func FuzzPodDNS(f *testing.F) {
	f.Add("nameserver 192.0.2.1\nsearch a b c\noptions ndots:3\n", "203.0.113.1 a", "x.y z", "edns0 ndots")
	f.Fuzz(func(t *testing.T, resolvConf, servers, searches, options string) {
		spec := corev1.PodSpec{DNSPolicy: "ClusterFirst",
			DNSConfig: &corev1.PodDNSConfig{Nameservers: strings.Fields(servers), Searches: strings.Fields(searches)}}
		for o := range strings.FieldsSeq(options) {
			spec.DNSConfig.Options = append(spec.DNSConfig.Options, corev1.PodDNSConfigOption{Name: o})
		}
		c, _ := PodDNS(named("web", spec), Resolver{Standalone: true, ClusterDomain: "cluster.local"},
			parseResolvConf(resolvConf))
		if len(c.Servers) > maxNameservers || len(c.Searches) > maxSearches ||
			len(strings.Join(c.Searches, " ")) > maxSearchChars {
			t.Errorf("over the limits: %v", c)
		}
	})
}

// A parsed resolv.conf that is written out parses to the same configuration.
func FuzzResolvConf(f *testing.F) {
	f.Add("nameserver 192.0.2.1 # the first\nsearch a.example. .\noptions ndots:1 rotate\noptions ndots:3\n")
	f.Add("search a.. ..\nsearch b\n;nameserver x\nnameserver fe80::1%eth0\noptions : :1 a")
	f.Fuzz(func(t *testing.T, text string) {
		c := parseResolvConf(text)
		var again strings.Builder
		for _, s := range c.Servers {
			again.WriteString("nameserver " + s + "\n")
		}
		again.WriteString("search " + strings.Join(c.Searches, " ") + "\noptions " + strings.Join(c.Options, " ") +
			"\n")
		if d := cmp.Diff(words(c), words(parseResolvConf(again.String()))); d != "" {
			t.Errorf("%q (-once +again):\n%s", text, d)
		}
	})
}

func TestCheckResolvConf(t *testing.T) {
	domain := func(n, length int) string {
		return strings.Repeat(fmt.Sprintf(" d%s", strings.Repeat("x", length-1)), n)
	}
	for name, c := range map[string]struct{ text, cluster, want string }{
		"all fit":         {"search" + domain(29, 5), "cluster.local", ""},
		"too many":        {"search" + domain(30, 5), "cluster.local", "line consisting of more than 29 domains!"},
		"outside":         {"search" + domain(32, 5), "", ""},
		"one is too long": {"search" + domain(1, 254), "", "search path which length is more than allowed 253 chars!"},
		"the line is long": {"search" + domain(9, 250), "",
			"search line which length is more than allowed 2048 chars!"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "resolv.conf")
			if err := os.WriteFile(path, []byte(c.text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			got := CheckResolvConf(path, c.cluster)
			if !strings.HasSuffix(got, c.want) || (got == "") != (c.want == "") {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if CheckResolvConf("", "cluster.local") != "" || CheckResolvConf("/no/such/file", "") == "" {
		t.Error("without a file there is nothing to check, and a missing file is reported")
	}
}
