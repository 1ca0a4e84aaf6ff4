package lease

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/berth-run/berth/internal/base/checkpoint/checkpointtest"
)

// FuzzLease reads the lease of a pod beside which another pod starts. Each address that is read is one, and the other
// pod gets free addresses of its ranges.
func FuzzLease(f *testing.F) {
	checkpointtest.Fuzz(f, checkpointtest.File{
		Name: "s1.json", Version: 1,
		Seeds: []string{
			`{"key":"s1","value":{"Number":1,"Addresses":["10.88.0.2/29","fd00::2/64"],"Ports":[{"Protocol":6,` +
				`"HostPort":8080,"Port":80},{"Protocol":17,"HostIP":"192.0.2.1","HostPort":53,"Port":5353}],` +
				`"Egress":true}}`,
			`{"key":"s1","value":{"Number":18446744073709551615,"Addresses":["10.88.0.7/29","::ffff:10.88.0.2/128"]}}`,
			`{"key":"s1","value":{"Number":2,"Addresses":["10.88.0.2/29",null]}}`,
		},
		Read: func(t *testing.T, dir string) (state, report string) {
			b := New(dir)
			damaged, err := b.Load()
			if err != nil {
				t.Fatal(err)
			}
			state, used := checkpointtest.Show(b.All()), b.Addresses()
			for _, a := range used {
				if !a.IsValid() {
					t.Errorf("a lease without an address was read: %s", state)
				}
			}
			ranges := []netip.Prefix{netip.MustParsePrefix("10.88.0.0/29"), netip.MustParsePrefix("fd00::/64")}
			free, err := b.reserve("another", ranges, nil, Lease{})
			if err != nil {
				return state, checkpointtest.Text(errors.Join(damaged...)) // the pod holds the whole range
			}
			for i, a := range free.Addresses {
				if !ranges[i].Contains(a.Addr()) || slices.Contains(used, a.Addr()) {
					t.Errorf("a pod gets %s beside %s", a, state)
				}
			}
			return state, checkpointtest.Text(errors.Join(damaged...))
		},
	})
}
