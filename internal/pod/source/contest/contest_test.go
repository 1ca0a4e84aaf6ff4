package contest

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// wish is a claim of the tests: the value is "ORIGIN/KEYS", so that a failure can be read.
func wish(rank int, value string, keys ...string) Claim[string, string] {
	return Claim[string, string]{Value: value, Keys: keys, Rank: rank}
}

func winners(c *Contest[string, string], keys ...string) (all []string) {
	for _, key := range keys {
		v, _, ok := c.Winner(key)
		if !ok {
			v = "-"
		}
		all = append(all, v)
	}
	return all
}

func losses(c *Contest[string, string]) (all []string) {
	for _, l := range c.Lost() {
		all = append(all, fmt.Sprintf("%s lacks %s of %s", l.Value, l.Key, l.Winner))
	}
	return all
}

func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestFirstClaimWins(t *testing.T) {
	c := New[string, string]()
	expect(t, "touched", c.Put("f", wish(0, "f1", "a", "1")), "f1")
	expect(t, "touched", c.Put("g", wish(0, "g1", "a", "2"), wish(0, "g2", "b", "3")), "f1", "g1", "g2")
	expect(t, "winners", winners(c, "a", "b", "1", "2", "3"), "f1", "g2", "f1", "-", "g2")
	expect(t, "losses", losses(c), "g1 lacks a of f1")

	// A new version of a claim keeps its place.
	expect(t, "touched", c.Put("f", wish(0, "f2", "a", "4")), "f1", "f2", "g1")
	expect(t, "winners", winners(c, "a", "1", "4"), "f2", "-", "f2")

	// The next one gets the name when the first is gone, and keeps it.
	c.Put("f")
	expect(t, "winners", winners(c, "a", "2"), "g1", "g1")
	c.Put("f", wish(0, "f3", "a", "1"))
	expect(t, "losses", losses(c), "f3 lacks a of g1")
}

func TestLoserHoldsNothing(t *testing.T) {
	c := New[string, string]()
	c.Put("f", wish(0, "f", "a", "1"))
	c.Put("g", wish(0, "g", "a", "2"))
	c.Put("h", wish(0, "h", "b", "2"))
	expect(t, "winners", winners(c, "a", "b"), "f", "h")
	// g wins now, so h loses, although it shares no key with f.
	expect(t, "touched", c.Put("f"), "f", "g", "h")
	expect(t, "winners", winners(c, "a", "b"), "g", "-")
	expect(t, "losses", losses(c), "h lacks 2 of g")
}

func TestTwiceInOneOrigin(t *testing.T) {
	c := New[string, string]()
	c.Put("f", wish(0, "first", "a", "2"), wish(0, "second", "a", "1"))
	expect(t, "losses", losses(c), "second lacks a of first")
	c.Put("f", wish(0, "second", "a", "1"), wish(0, "first", "a", "2"))
	expect(t, "losses", losses(c), "first lacks a of second")
}

func TestRank(t *testing.T) {
	c := New[string, string]()
	c.Put("late", wish(1, "late", "a"))
	c.Put("early", wish(0, "early", "a"))
	expect(t, "losses", losses(c), "late lacks a of early")
}

// TestUnchangedClaimsCostNothing is about an origin with many claims, such as all applied pods.
func TestUnchangedClaimsCostNothing(t *testing.T) {
	c := New[string, string]()
	all := []Claim[string, string]{wish(0, "a", "a"), wish(0, "b", "b"), wish(0, "c", "c")}
	c.Put("f", all...)
	expect(t, "touched", c.Put("f", all...))
	expect(t, "touched", c.Put("f", append(all[:2:2], wish(0, "c2", "c"))...), "c", "c2")
}

// naive decides about all claims from the beginning.
func naive(claims map[string][]*entry[string, string]) (won, lost []string) {
	all := slices.SortedFunc(slices.Values(slices.Concat(slices.Collect(maps.Values(claims))...)),
		func(a, b *entry[string, string]) int {
			return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.order, b.order), cmp.Compare(a.index, b.index))
		})
	taken := map[string]string{}
next:
	for _, e := range all {
		for _, key := range e.Keys {
			if other, ok := taken[key]; ok {
				lost = append(lost, fmt.Sprintf("%s lacks %s of %s", e.Value, key, other))
				continue next
			}
		}
		for _, key := range e.Keys {
			taken[key] = e.Value
		}
	}
	for _, key := range slices.Sorted(maps.Keys(taken)) {
		won = append(won, key+"="+taken[key])
	}
	return won, lost
}

// TestLikeNaive compares random changes with a decision about all claims.
func TestLikeNaive(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		c, seen := New[string, string](), map[string]string{}
		for step := range 40 {
			origin := fmt.Sprint("origin", r.IntN(5))
			var claims []Claim[string, string]
			for n := range r.IntN(4) {
				claims = append(claims, wish(r.IntN(2), fmt.Sprint(origin, "/", r.IntN(3), "/", n),
					fmt.Sprint("name", r.IntN(6)), fmt.Sprint("uid", r.IntN(6))))
			}
			touched := c.Put(origin, claims...)
			won, lost := naive(c.origins)
			now := map[string]string{}
			for key := range c.byKey {
				if v, _, ok := c.Winner(key); ok {
					now[key] = v
				}
			}
			var got []string
			for _, key := range slices.Sorted(maps.Keys(now)) {
				got = append(got, key+"="+now[key])
			}
			expect(t, fmt.Sprintf("seed %d, step %d: winners", seed, step), got, won...)
			expect(t, fmt.Sprintf("seed %d, step %d: losses", seed, step), losses(c), lost...)
			for key, v := range now {
				if seen[key] != v && !slices.Contains(touched, v) {
					t.Errorf("seed %d, step %d: %s won %s and is not touched: %v", seed, step, v, key, touched)
				}
			}
			if seen = now; t.Failed() {
				return
			}
		}
	}
}
