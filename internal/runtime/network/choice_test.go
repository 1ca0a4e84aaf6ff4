package network

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berth-run/berth/internal/base/roottest"
)

const patience = 30 * time.Second

// inRoot returns a network without configured ranges, which belongs to the root directory.
func inRoot(root, bridge string, log *slog.Logger) *Network {
	return New(Config{
		Dir: filepath.Join(root, "cni"), CNIConfDir: filepath.Join(root, "net.d"), Bridge: bridge, Owner: root,
		RangesFile: filepath.Join(root, "ranges"), ChoiceFile: filepath.Join(root, "chosen"),
		StateDir: root, LeaseDir: filepath.Join(root, "ipam"),
		Leases: filepath.Join(root, "leases"), Plugins: noPlugins{}, Log: log,
	})
}

func prepare(t *testing.T, n *Network) []netip.Prefix {
	t.Helper()
	if err := n.Prepare(t.Context(), Machine{IPv6: true, Nftables: true}); err != nil {
		t.Fatal(err)
	}
	return n.config.PodCIDRs
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v\n%s", args, err, out)
	}
}

func same(t *testing.T, what string, got, want []netip.Prefix) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Agents of two root directories choose different ranges and keep them. The second one says which bridge it found. One
// whose range has become occupied chooses again, unless a pod has an address of it.
func TestNetworksOfTwoRootsDoNotOverlap(t *testing.T) {
	if !roottest.OwnNetwork(t) {
		return
	}
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	one, two := t.TempDir(), t.TempDir()
	same(t, "the first root", prepare(t, inRoot(one, "berth0", log)), prefixes("10.201.0.0/16", "fd62:6572:7468::/64"))
	text.Reset()
	second := prefixes("10.202.0.0/16", "fd62:6572:7468:1::/64")
	same(t, "the second root", prepare(t, inRoot(two, "berth-12345678", log)), second)
	if said := text.String(); !strings.Contains(said, "bridge=berth0 root="+one) ||
		!strings.Contains(said, "10.201.0.0/16") {
		t.Errorf("the log does not name the other root's bridge:\n%s", said)
	}

	ip(t, "link", "del", "berth0")
	same(t, "the second root again", prepare(t, inRoot(two, "berth-12345678", log)), second)

	ip(t, "link", "add", "vpn", "type", "bridge")
	ip(t, "link", "set", "vpn", "up")
	ip(t, "route", "add", "10.202.7.0/24", "dev", "vpn", "table", "51820")
	n := inRoot(two, "berth-12345678", log)
	lease := filepath.Join(leases(n.config), "10.202.0.2")
	made := os.MkdirAll(leases(n.config), 0o700)
	if err := errors.Join(made, os.WriteFile(lease, []byte("id\r\neth0"), 0o600)); err != nil {
		t.Fatal(err)
	}
	same(t, "occupied, with a pod", prepare(t, n), second)
	n = inRoot(two, "berth-12345678", log)
	if err := os.Remove(lease); err != nil {
		t.Fatal(err)
	}
	same(t, "occupied, without a pod", prepare(t, n), prefixes("10.201.0.0/16", "fd62:6572:7468:1::/64"))
}

// A network that overlaps with the pods' appears and goes away. The default routes of a VPN do not count.
func TestWatchReportsOverlaps(t *testing.T) {
	if !roottest.OwnNetwork(t) {
		return
	}
	n := inRoot(t.TempDir(), "berth0", slog.New(slog.DiscardHandler))
	pods := prepare(t, n)[0]
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Watch(ctx) }()
	watcher := n.Overlaps().Watch()
	defer watcher.Stop()
	next := func(want string, deleted bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		changes, err := watcher.Next(ctx)
		if err != nil || len(changes) != 1 || changes[0].Key != pods || changes[0].Value != want ||
			changes[0].Deleted != deleted {
			t.Fatalf("%+v, %v; want %q for %s, deleted %t", changes, err, want, pods, deleted)
		}
	}
	ip(t, "link", "add", "vpn", "type", "bridge")
	ip(t, "link", "set", "vpn", "up")
	ip(t, "route", "add", "0.0.0.0/1", "dev", "vpn")
	ip(t, "route", "add", "10.201.7.0/24", "dev", "vpn", "table", "51820")
	next("10.201.7.0/24 (route over vpn in table 51820)", false)
	ip(t, "link", "del", "vpn")
	next("10.201.7.0/24 (route over vpn in table 51820)", true)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A power cut may leave the file of the cluster's ranges empty. Without a network the runtime would not start, and so
// the cluster could never send the ranges again.
func TestPrepareNamesDamagedRangesAndContinues(t *testing.T) {
	if !roottest.OwnNetwork(t) {
		return
	}
	var text bytes.Buffer
	n := inRoot(t.TempDir(), "berth0", slog.New(slog.NewTextHandler(&text, nil)))
	if err := os.WriteFile(n.config.RangesFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	same(t, "without the damaged file", prepare(t, n), prefixes("10.201.0.0/16", "fd62:6572:7468::/64"))
	if said := text.String(); !strings.Contains(said, n.config.RangesFile) {
		t.Errorf("the log does not name the file:\n%s", said)
	}
}
