package link

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestAliasNamesThePod(t *testing.T) {
	pod := Pod{ID: strings.Repeat("1a", 32), Addresses: []netip.Prefix{
		netip.MustParsePrefix("10.201.255.254/16"),
		netip.MustParsePrefix("fd62:6572:7468:ffff:ffff:ffff:ffff:fffe/64")}}
	const most = 255 // of the kernel
	text := alias("berth-12345678", pod.ID, pod.Addresses)
	if len(text) > most {
		t.Errorf("alias %q is too long", text)
	}
	got, ok := parse("berth-12345678", text)
	if diff := cmp.Diff(pod, got, cmpopts.EquateComparable(netip.Prefix{})); !ok || diff != "" {
		t.Errorf("%t (-want +got):\n%s", ok, diff)
	}
	for _, other := range []string{"", "pods of /var/lib/berth", alias("berth0", pod.ID, pod.Addresses),
		"pod of berth-12345678: only-a-sandbox", "pod of berth-12345678: a 10.0.0.2"} {
		if _, ok := parse("berth-12345678", other); ok {
			t.Errorf("alias %q was read as one of the bridge's pods", other)
		}
	}
}

func TestHardwareAddress(t *testing.T) {
	for address, want := range map[string]string{
		"10.201.0.2/16": "0a:58:0a:c9:00:02", "fd00::1:2/64": "0a:58:00:01:00:02",
	} {
		if got := hardware([]netip.Prefix{netip.MustParsePrefix(address)}).String(); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}
