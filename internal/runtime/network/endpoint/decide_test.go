package endpoint

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berth-run/berth/internal/runtime/network/lease"
	"github.com/berth-run/berth/internal/runtime/network/link"
	"github.com/berth-run/berth/internal/runtime/network/nat"
)

func TestCompareLeasesWithDevices(t *testing.T) {
	at := []netip.Prefix{netip.MustParsePrefix("10.1.0.2/24"), netip.MustParsePrefix("10.1.0.3/24")}
	port := nat.Port{Protocol: 6, HostPort: 80, Port: 8080}
	leases := map[string]lease.Lease{"runs": {Number: 1, Addresses: at[:1]}, "gone": {Number: 2}}
	devices := []link.Pod{{ID: "runs", Addresses: at[:1]}, {ID: "lost", Addresses: at[1:]}}
	stale, lost := compare(leases, devices, map[netip.Addr][]nat.Port{at[1].Addr(): {port}})
	same := cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})
	if diff := cmp.Diff(map[string]lease.Lease{"gone": {Number: 2}}, stale, same); diff != "" {
		t.Errorf("stale (-want +got):\n%s", diff)
	}
	want := map[string]lease.Lease{"lost": {Addresses: at[1:], Ports: []nat.Port{port}, Egress: true}}
	if diff := cmp.Diff(want, lost, same); diff != "" {
		t.Errorf("lost (-want +got):\n%s", diff)
	}
}
