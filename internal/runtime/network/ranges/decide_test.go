package ranges

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func taken(texts ...string) []Taken {
	var all []Taken
	for _, p := range prefixes(texts...) {
		all = append(all, Taken{Range: p})
	}
	return all
}

func TestChoose(t *testing.T) {
	const first4, first6 = "10.201.0.0/16", "fd62:6572:7468::/64"
	every6 := taken("fd62:6572:7468::/48")
	for name, test := range map[string]struct {
		taken []Taken
		want  []netip.Prefix
	}{
		"nothing taken":      {nil, prefixes(first4, first6)},
		"default routes":     {taken("0.0.0.0/0", "::/0", "0.0.0.0/1", "128.0.0.0/1"), prefixes(first4, first6)},
		"networks elsewhere": {taken("192.0.2.0/24", "fd00::/64"), prefixes(first4, first6)},
		"the same":           {taken(first4, first6), prefixes("10.202.0.0/16", "fd62:6572:7468:1::/64")},
		"an address within":  {taken("10.201.3.4/32"), prefixes("10.202.0.0/16", first6)},
		"several": {
			taken(first4, "10.202.0.0/15", "10.204.1.0/24"), prefixes("10.205.0.0/16", first6)},
		"the whole of 10.0.0.0": {taken("10.0.0.0/8"), prefixes("172.31.0.0/16", first6)},
		"all but one within 10": {taken("10.128.0.0/9"), prefixes("10.127.0.0/16", first6)},
		"only within wider routes": {
			append(taken("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", first4), every6...),
			prefixes("10.202.0.0/16", first6)},
		"every network of a family": {taken("fd00::/8", first6), prefixes(first4, "fd62:6572:7468:1::/64")},
	} {
		if diff := cmp.Diff(test.want, Choose(test.taken), cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestOverlap(t *testing.T) {
	pods := netip.MustParsePrefix("10.9.0.0/16")
	for text, want := range map[string]bool{
		"10.9.1.0/24": true, "10.0.0.0/8": true, "10.9.0.0/16": true, "10.8.0.0/16": false, "0.0.0.0/0": false,
		"8.0.0.0/5": false, "::/0": false, "fd00::/8": false,
	} {
		if _, got := Overlap(pods, taken(text)); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}
