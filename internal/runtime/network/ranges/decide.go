package ranges

import (
	"fmt"
	"net/netip"
	"slices"
)

// Taken is a range of addresses that the machine reaches over an interface.
type Taken struct {
	Range netip.Prefix
	// By describes the route or the address, for example "route over wg0 in table 51820".
	By string
}

// parts is the length of the shortest prefix that counts as a network of its own. Shorter ones are parts of a default
// route: a VPN that takes all traffic often has routes to 0.0.0.0/1 and 128.0.0.0/1.
const parts = 8

// Overlap returns the first taken range that overlaps with a range of pods.
func Overlap(pods netip.Prefix, taken []Taken) (Taken, bool) {
	i := slices.IndexFunc(taken, func(t Taken) bool { return t.Range.Bits() >= parts && t.Range.Overlaps(pods) })
	if i < 0 {
		return Taken{}, false
	}
	return taken[i], true
}

// Choose returns a free range of each family. If every range of a family overlaps, it chooses one within wider routes
// only, since the kernel prefers the route to the smaller range. If there is none either, it returns the first
// candidate.
func Choose(taken []Taken) []netip.Prefix {
	narrow := slices.DeleteFunc(slices.Clone(taken), func(t Taken) bool {
		return t.Range.Bits() < candidateBits(t.Range.Addr())
	})
	var chosen []netip.Prefix
	for _, candidates := range [][]netip.Prefix{candidates4(), candidates6()} {
		at := free(candidates, taken)
		if at < 0 {
			at = free(candidates, narrow)
		}
		chosen = append(chosen, candidates[max(0, at)])
	}
	return chosen
}

// free returns the index of the first candidate without an overlap, or -1.
func free(candidates []netip.Prefix, taken []Taken) int {
	return slices.IndexFunc(candidates, func(p netip.Prefix) bool {
		_, overlaps := Overlap(p, taken)
		return !overlaps
	})
}

const bits4, bits6 = 16, 64

// candidateBits is the prefix length of candidates of the address's family.
func candidateBits(a netip.Addr) int {
	if a.Is4() {
		return bits4
	}
	return bits6
}

// candidates4 returns private ranges (RFC 1918), 10.201.0.0/16 first. The end of 172.16.0.0/12 comes before its start,
// where other container engines begin.
func candidates4() []netip.Prefix {
	var all []netip.Prefix
	add := func(a, b byte) { all = append(all, netip.PrefixFrom(netip.AddrFrom4([4]byte{a, b}), bits4)) }
	for b := 201; b <= 254; b++ {
		add(10, byte(b))
	}
	for b := 200; b >= 0; b-- {
		add(10, byte(b))
	}
	for b := 31; b >= 16; b-- {
		add(172, byte(b))
	}
	add(192, 168)
	return all
}

// candidates6 returns the first 256 networks of Berth's unique local range (RFC 4193).
func candidates6() []netip.Prefix {
	var all []netip.Prefix
	for i := range 256 {
		all = append(all, netip.MustParsePrefix(fmt.Sprintf("fd62:6572:7468:%x::/64", i)))
	}
	return all
}
