package lease

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berth-run/berth/internal/runtime/network/nat"
)

var compared = cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})

// A book that is opened again has the same leases, and continues after the newest one. It gives out no released
// address, no address of a pod without a lease, and no leased address.
func TestBookSurvivesItsProcess(t *testing.T) {
	dir := t.TempDir()
	ranges := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("fd00::/64")}
	other := []netip.Addr{netip.MustParseAddr("10.1.0.4")}
	b := New(dir)
	port := nat.Port{Protocol: 6, HostIP: netip.MustParseAddr("192.0.2.1"), HostPort: 80, Port: 8080}
	for _, id := range []string{"one", "two", "three"} {
		port.HostPort++
		if _, err := b.Take(id, ranges, other, Lease{Ports: []nat.Port{port}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Release("two"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Take("one", ranges, other, Lease{}); err == nil {
		t.Error("a sandbox has two leases")
	}
	if _, err := b.Take("four", ranges, other, Lease{Ports: []nat.Port{port}}); err == nil ||
		!strings.Contains(err.Error(), "host port 83 leads to sandbox three") {
		t.Errorf("a lease with the host port of another one: %v", err)
	}
	again := New(dir)
	if damaged, err := again.Load(); err != nil || len(damaged) > 0 {
		t.Fatal(damaged, err)
	}
	if diff := cmp.Diff(b.All(), again.All(), compared); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
	four, err := again.Take("four", ranges, other, Lease{})
	if err != nil {
		t.Fatal(err)
	}
	want := []netip.Prefix{netip.MustParsePrefix("10.1.0.6/24"), netip.MustParsePrefix("fd00::5/64")}
	if diff := cmp.Diff(want, four.Addresses, compared); diff != "" {
		t.Errorf("the next lease (-want +got):\n%s", diff)
	}
}

func TestFullRangeSaysWhatToDo(t *testing.T) {
	b := New(t.TempDir())
	small := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/29")}
	for i := range 5 {
		if _, err := b.Take(fmt.Sprint(i), small, nil, Lease{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Take("another", small, nil, Lease{}); err == nil || !strings.Contains(err.Error(), "set podCIDR") {
		t.Errorf("a lease of a full range: %v", err)
	}
	if err := b.Release("2"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Take("another", small, nil, Lease{}); err != nil {
		t.Error(err)
	}
}
