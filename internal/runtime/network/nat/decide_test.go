package nat

import (
	"encoding/hex"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestElements(t *testing.T) {
	at := netip.MustParseAddr
	p := Pod{ID: "a", Addresses: []netip.Addr{at("10.0.0.2"), at("fd00::2")}, Ports: []Port{
		{Protocol: 6, HostPort: 8080, Port: 80},
		{Protocol: 17, HostIP: at("192.0.2.1"), HostPort: 53, Port: 5353},
		{Protocol: 17, HostIP: at("192.0.2.2"), HostPort: 53, Port: 5353},
		{Protocol: 132, HostIP: at("::"), HostPort: 1, Port: 2},
	}}
	got := map[string][]string{}
	for set, all := range elements(p) {
		for _, e := range all {
			if e.Comment != p.ID {
				t.Errorf("element of %s has the comment %q", set, e.Comment)
			}
			text := hex.EncodeToString(e.Key)
			if len(e.Val) > 0 {
				text += " " + hex.EncodeToString(e.Val)
			}
			got[set] = append(got[set], text)
		}
	}
	const pod6 = "fd000000000000000000000000000002"
	want := map[string][]string{
		"pods4":      {"0a000002"},
		"pods6":      {pod6},
		"ports4":     {"060000001f900000 0a00000200500000"},
		"ports6":     {"060000001f900000 " + pod6 + "00500000", "8400000000010000 " + pod6 + "00020000"},
		"addressed4": {"c00002011100000000350000 0a00000214e90000", "c00002021100000000350000 0a00000214e90000"},
		"forwarded4": {"060000001f9000000a00000200500000", "11000000003500000a00000214e90000"},
		"forwarded6": {"060000001f900000" + pod6 + "00500000", "8400000000010000" + pod6 + "00020000"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Host ports that are read from the maps open the same ports again.
func TestPortsFromElements(t *testing.T) {
	at := netip.MustParseAddr
	p := Pod{ID: "a", Addresses: []netip.Addr{at("10.0.0.2"), at("fd00::2")}, Ports: []Port{
		{Protocol: 6, HostPort: 8080, Port: 80}, {Protocol: 17, HostIP: at("192.0.2.1"), HostPort: 53, Port: 5353},
	}}
	read := Pod{ID: p.ID, Addresses: p.Addresses}
	for _, f := range []family{ipv4, ipv6} {
		for _, name := range []string{"ports", "addressed"} {
			for _, e := range elements(p)[f.set(name)] {
				pod, port, ok := f.port(name == "addressed", e)
				if !ok || pod != p.Addresses[0] && pod != p.Addresses[1] {
					t.Errorf("element %x of %s: %s, %t", e.Key, f.set(name), pod, ok)
				}
				read.Ports = append(read.Ports, port)
				e.Key = e.Key[1:]
				if _, _, ok := f.port(name == "addressed", e); ok {
					t.Errorf("element %x of another shape was read", e.Key)
				}
			}
		}
	}
	if diff := cmp.Diff(elements(p), elements(read), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestConflicts(t *testing.T) {
	at := func(ip string) Port {
		p := Port{Protocol: 6, HostPort: 80}
		if ip != "" {
			p.HostIP = netip.MustParseAddr(ip)
		}
		return p
	}
	for _, test := range []struct {
		a, b Port
		want bool
	}{
		{at(""), at(""), true},
		{at(""), at("0.0.0.0"), true},
		{at("::"), at(""), true},
		{at("::"), at("0.0.0.0"), false},
		{at("::"), at("::"), true},
		{at("192.0.2.1"), at("192.0.2.1"), true},
		{at("192.0.2.1"), at("::ffff:192.0.2.1"), true},
		{at("192.0.2.1"), at("192.0.2.2"), false},
		{at("192.0.2.1"), at(""), false},
		{at(""), Port{Protocol: 17, HostPort: 80}, false},
		{at(""), Port{Protocol: 6, HostPort: 81}, false},
	} {
		if test.a.Conflicts(test.b) != test.want || test.b.Conflicts(test.a) != test.want {
			t.Errorf("%+v and %+v: want %t", test.a, test.b, test.want)
		}
	}
}
