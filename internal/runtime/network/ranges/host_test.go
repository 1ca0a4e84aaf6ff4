package ranges

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berth-run/berth/internal/base/roottest"
)

// A VPN has routes in a table of its own, an interface that is down has an address, and a range is blocked.
func TestRead(t *testing.T) {
	if !roottest.OwnNetwork(t) {
		return
	}
	script := `
ip link add vpn type bridge; ip link set vpn up; ip route add 10.50.0.0/16 dev vpn table 51820
ip link add idle type bridge; ip address add 10.60.0.1/24 dev idle
ip link add own type bridge; ip address add 10.201.0.1/16 dev own; ip link set own up
ip route add blackhole 10.70.0.0/16; ip route add default dev vpn
ip -6 address add fd01::1/64 dev idle nodad`
	if out, err := exec.CommandContext(t.Context(), "sh", "-ec", script).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	all, err := Read("own")
	if err != nil {
		t.Fatal(err)
	}
	var got []Taken
	for _, taken := range all {
		if strings.HasPrefix(taken.Range.String(), "10.") || strings.HasPrefix(taken.Range.String(), "fd") {
			got = append(got, taken)
		}
	}
	want := []Taken{
		{netip.MustParsePrefix("10.70.0.0/16"), "route"},
		{netip.MustParsePrefix("10.50.0.0/16"), "route over vpn in table 51820"},
		{netip.MustParsePrefix("10.60.0.0/24"), "address of idle"},
		{netip.MustParsePrefix("fd01::/64"), "address of idle"},
	}
	less := cmpopts.SortSlices(func(a, b Taken) bool { return a.Range.String() < b.Range.String() })
	if diff := cmp.Diff(want, got, less, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
