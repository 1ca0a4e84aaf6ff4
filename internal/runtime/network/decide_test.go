package network

import (
	"log/slog"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/golden"
	"github.com/berth-run/berth/internal/runtime/network/nat"
	"github.com/berth-run/berth/internal/runtime/network/ranges"
)

// noPlugins are CNI plugins that no test runs.
type noPlugins struct{}

func (noPlugins) InstallPlugins() error { return nil }

// example is the configuration of a network with one range of each family.
func example() Config {
	return Config{
		Plugins:  noPlugins{},
		PodCIDRs: prefixes("10.201.0.0/16", "fd62:6572:7468::/64"), Bridge: "berth0", LeaseDir: "/run/berth/ipam",
		Log: slog.New(slog.DiscardHandler),
	}
}

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func TestNetworkConfig(t *testing.T) {
	golden.JSON(t, "dual.json", networkConfig(example(), Machine{IPv6: true, Nftables: true}))
	golden.JSON(t, "ipv4.json", networkConfig(example(), Machine{Nftables: true}))
}

func TestSource(t *testing.T) {
	for want, test := range map[source]struct{ only, configured bool }{
		machine: {configured: true}, builtIn: {}, noNetwork: {only: true},
	} {
		if got := (Config{CNIOnly: test.only}).source(test.configured); got != want {
			t.Errorf("%+v: %s, want %s", test, got, want)
		}
	}
	if got := (Config{CNIOnly: true}).source(true); got != machine {
		t.Errorf("with a CNI configuration and CNIOnly: %s", got)
	}
}

func TestGateways(t *testing.T) {
	type change struct{ Remove, Add []netip.Prefix }
	leases := []netip.Addr{netip.MustParseAddr("10.1.0.7"), netip.MustParseAddr("fd01::7")}
	for name, test := range map[string]struct {
		present []netip.Prefix
		ranged  string
		want    change
	}{
		"none yet": {nil, "10.2.0.0/24", change{nil, prefixes("10.2.0.1/24")}},
		"this one": {present: prefixes("10.2.0.1/24"), ranged: "10.2.0.0/24"},
		"another, in use": {prefixes("10.1.0.1/16"), "10.2.0.0/24",
			change{prefixes("10.1.0.1/16"), prefixes("10.2.0.1/24", "10.1.0.1/16")}},
		"another, not in use": {prefixes("10.9.0.1/16"), "10.2.0.0/24",
			change{prefixes("10.9.0.1/16"), prefixes("10.2.0.1/24")}},
		"first already": {present: prefixes("10.2.0.1/24", "10.1.0.1/16"), ranged: "10.2.0.0/24"},
		"the same, second": {prefixes("10.1.0.1/16", "10.2.0.1/24"), "10.2.0.0/24",
			change{prefixes("10.1.0.1/16", "10.2.0.1/24"), prefixes("10.2.0.1/24", "10.1.0.1/16")}},
		"first, with a useless": {prefixes("10.2.0.1/24", "10.9.0.1/16"), "10.2.0.0/24",
			change{prefixes("10.2.0.1/24", "10.9.0.1/16"), prefixes("10.2.0.1/24")}},
		"part of another": {prefixes("10.1.0.1/16"), "10.1.2.0/24",
			change{prefixes("10.1.0.1/16"), prefixes("10.1.2.1/24", "10.1.0.1/16")}},
		"IPv6, in use": {prefixes("fd01::1/64"), "fd02::/64",
			change{prefixes("fd01::1/64"), prefixes("fd01::1/64", "fd02::1/64")}},
	} {
		t.Run(name, func(t *testing.T) {
			var got change
			got.Remove, got.Add = gateways(test.present, netip.MustParsePrefix(test.ranged), leases)
			if diff := cmp.Diff(test.want, got, cmpopts.EquateComparable(netip.Prefix{}),
				cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestKeep(t *testing.T) {
	chosen := prefixes("10.202.0.0/16", "fd01::/64")
	for name, test := range map[string]struct {
		before []netip.Prefix
		taken  string
		leases []netip.Addr
		want   []netip.Prefix
	}{
		"the first time": {nil, "192.0.2.0/24", nil, chosen},
		"still free": {prefixes("10.9.0.0/16", "fd09::/64"), "192.0.2.0/24", nil,
			prefixes("10.9.0.0/16", "fd09::/64")},
		"taken since": {prefixes("10.9.0.0/16", "fd09::/64"), "10.9.1.0/24", nil,
			prefixes("10.202.0.0/16", "fd09::/64")},
		"taken, with pods": {prefixes("10.9.0.0/16", "fd09::/64"), "10.9.1.0/24",
			[]netip.Addr{netip.MustParseAddr("10.9.0.2")}, prefixes("10.9.0.0/16", "fd09::/64")},
		"without IPv6": {prefixes("10.9.0.0/16"), "192.0.2.0/24", nil, prefixes("10.9.0.0/16", "fd01::/64")},
	} {
		got := keep(test.before, chosen, []ranges.Taken{{Range: netip.MustParsePrefix(test.taken)}}, test.leases)
		if diff := cmp.Diff(test.want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestConcerns(t *testing.T) {
	for path, want := range map[string]bool{
		"/etc/cni/net.d": true, "/etc/cni/net.d/10-a.conf": true, "/etc/cni": true, "/etc": true,
		"/etc/passwd": false, "/etc/cni/net": false, "/etc/cni/net.d/a/b.conf": false,
	} {
		if got := concerns(path, "/etc/cni/net.d"); got != want {
			t.Errorf("%s: %t, want %t", path, got, want)
		}
	}
}

func TestPortsOf(t *testing.T) {
	mapping := func(protocol runtimeapi.Protocol, ip string, host, pod int32) *runtimeapi.PortMapping {
		return &runtimeapi.PortMapping{Protocol: protocol, HostIp: ip, HostPort: host, ContainerPort: pod}
	}
	got, err := portsOf([]*runtimeapi.PortMapping{
		mapping(runtimeapi.Protocol_TCP, "", 80, 8080), mapping(runtimeapi.Protocol_UDP, "::1", 65535, 1),
		mapping(runtimeapi.Protocol_SCTP, "0.0.0.0", 1, 65535), mapping(runtimeapi.Protocol_TCP, "", 0, 7),
	})
	want := []nat.Port{
		{Protocol: 6, HostPort: 80, Port: 8080},
		{Protocol: 17, HostIP: netip.MustParseAddr("::1"), HostPort: 65535, Port: 1},
		{Protocol: 132, HostIP: netip.MustParseAddr("0.0.0.0"), HostPort: 1, Port: 65535},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for name, bad := range map[string]*runtimeapi.PortMapping{
		"host port": mapping(0, "", 65536, 1), "port": mapping(0, "", 1, 65536), "no port": mapping(0, "", 1, 0),
		"protocol": mapping(7, "", 1, 1), "host IP": mapping(0, "localhost", 1, 1),
	} {
		if _, err := portsOf([]*runtimeapi.PortMapping{bad}); err == nil {
			t.Errorf("%s: %v was accepted", name, bad)
		}
	}
}
