package runtime

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestHasCNIConfig(t *testing.T) {
	dir := t.TempDir()
	for _, test := range []struct {
		file string
		want bool
	}{
		{"README", false},
		{"10-net.conf.bak", false},
		{"10-net.conflist", true},
	} {
		if err := os.WriteFile(filepath.Join(dir, test.file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := hasCNIConfig(dir)
		if err != nil || got != test.want {
			t.Errorf("with %s: %t, %v, want %t", test.file, got, err, test.want)
		}
	}
	if got, err := hasCNIConfig(filepath.Join(dir, "absent")); err != nil || got {
		t.Errorf("absent directory: %t, %v", got, err)
	}
}

// The ranges that a cluster gives a node replace those of before, also for the next
// agent; a configuration that says some is not overruled by what was there once.
func TestRangesOfTheCluster(t *testing.T) {
	root := t.TempDir()
	start := func(given ...netip.Prefix) *Runtime {
		r := New(Config{Root: root, State: t.TempDir(), PodCIDRs: given, Log: slog.New(slog.DiscardHandler)})
		r.builtIn = &host{filter: "nftables"}
		if err := r.recallRanges(); err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := start()
	for _, bad := range []string{"10.99.7.1/24", "10.99.7.0/24,10.99.8.0/24", "pods", "fd00::/64"} {
		if err := first.useRanges(bad); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
	if err := first.useRanges("10.99.7.0/24"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(first.layout().network())
	if err != nil || !strings.Contains(string(text), `"subnet": "10.99.7.0/24"`) {
		t.Errorf("%v: %s", err, text)
	}
	given, configured := netip.MustParsePrefix("10.99.7.0/24"), netip.MustParsePrefix("10.5.0.0/16")
	got := [][]netip.Prefix{start().config.PodCIDRs, start(configured).config.PodCIDRs}
	if want := [][]netip.Prefix{{given}, {configured}}; !slices.EqualFunc(want, got, slices.Equal) {
		t.Errorf("after a restart: %v, want %v", got, want)
	}
	other := start()
	other.builtIn = nil
	if err := other.useRanges("10.1.0.0/24"); err != nil {
		t.Error(err)
	}
	if now, _ := os.ReadFile(first.layout().network()); string(now) != string(text) {
		t.Error("the network of another's configuration was touched")
	}
}
