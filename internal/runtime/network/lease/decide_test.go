package lease

import (
	"net/netip"
	"testing"
)

func TestNextAddress(t *testing.T) {
	for name, test := range map[string]struct {
		ranged, last string
		used         []string
		want         string // empty: none is free
	}{
		"the first":        {ranged: "10.1.0.0/24", want: "10.1.0.2"},
		"after the newest": {ranged: "10.1.0.0/24", last: "10.1.0.7", want: "10.1.0.8"},
		"over those in use": {ranged: "10.1.0.0/24", last: "10.1.0.7", used: []string{"10.1.0.8"},
			want: "10.1.0.9"},
		"again from the start": {ranged: "10.1.0.0/24", last: "10.1.0.254", want: "10.1.0.2"},
		"never the broadcast address": {ranged: "10.1.0.0/24", last: "10.1.0.253",
			used: []string{"10.1.0.254"}, want: "10.1.0.2"},
		"the newest is of another range": {ranged: "10.1.0.0/24", last: "10.9.0.7", want: "10.1.0.2"},
		"the newest is the gateway":      {ranged: "10.1.0.0/24", last: "10.1.0.1", want: "10.1.0.2"},
		"over the end of a byte":         {ranged: "10.1.0.0/16", last: "10.1.0.255", want: "10.1.1.0"},
		"the last free one": {ranged: "10.1.0.0/29", last: "10.1.0.5",
			used: []string{"10.1.0.2", "10.1.0.4", "10.1.0.5", "10.1.0.6"}, want: "10.1.0.3"},
		"none":             {ranged: "10.1.0.0/30", used: []string{"10.1.0.2"}},
		"too small":        {ranged: "10.1.0.0/31"},
		"a single address": {ranged: "10.1.0.0/32"},
		"IPv6":             {ranged: "fd00::/64", last: "fd00::ffff", want: "fd00::1:0"},
		"IPv6, the last":   {ranged: "fd00::/126", last: "fd00::2", want: "fd00::3"},
		"IPv6, none":       {ranged: "fd00::/126", used: []string{"fd00::2", "fd00::3"}},
		"IPv6, too small":  {ranged: "fd00::/127"},
	} {
		used := map[netip.Addr]bool{}
		for _, a := range test.used {
			used[netip.MustParseAddr(a)] = true
		}
		var last netip.Addr
		if test.last != "" {
			last = netip.MustParseAddr(test.last)
		}
		got, ok := next(netip.MustParsePrefix(test.ranged), last, used)
		if ok != (test.want != "") || ok && got.String() != test.want {
			t.Errorf("%s: %s, %t; want %q", name, got, ok, test.want)
		}
	}
}
