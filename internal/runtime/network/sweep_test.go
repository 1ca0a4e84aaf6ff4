package network

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/roottest"
)

// boxes are sandboxes with their network namespaces.
type boxes map[string]string

func (b boxes) Sandboxes(context.Context) (ids []string, err error) {
	for id := range b {
		ids = append(ids, id)
	}
	return ids, nil
}

func (b boxes) Namespace(_ context.Context, id string) (string, error) { return b[id], nil }

// An agent was killed while it started a pod, and no sandbox knows of it. Another pod of this runtime runs, and so does
// a pod of another network.
func TestSweepRemovesWhatNoSandboxHas(t *testing.T) {
	if !roottest.OwnNetwork(t) {
		return
	}
	live, killed := strings.Repeat("1a", 32), strings.Repeat("2b", 32)
	dir := t.TempDir()
	c := example()
	c.StateDir, c.LeaseDir = dir, filepath.Join(dir, "ipam")
	n := New(c)

	namespace := func(id string) string { return filepath.Join(dir, "cri", "netns", id) }
	lease := func(address string) string { return filepath.Join(c.LeaseDir, c.Bridge, address) }
	write := func(path, text string) {
		t.Helper()
		made := os.MkdirAll(filepath.Dir(path), 0o700)
		if err := errors.Join(made, os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	rule := func(network, id string) string {
		return "add rule inet cni_plugins_masquerade masq_checks masquerade comment " +
			`"01-02, net: ` + network + ", if: eth0, id: " + id[:58] + `"; `
	}
	rules := "add table inet cni_plugins_masquerade; add chain inet cni_plugins_masquerade masq_checks; "
	for address, id := range map[string]string{"10.201.0.2": live, "10.201.0.3": killed} {
		write(lease(address), id+"\r\neth0")
		write(namespace(id), "")
		if err := unix.Mount("/proc/self/ns/net", namespace(id), "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(namespace(id), unix.MNT_DETACH) })
		rules += rule(c.Bridge, id)
	}
	foreign := strings.Repeat("3c", 32)
	rules += rule("other", foreign)
	write(lease("last_reserved_ip.0"), "10.201.0.3")
	nft := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "nft", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("nft %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	nft(rules)

	if err := n.Sweep(t.Context(), boxes{live: namespace(live)}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		lease("10.201.0.2"): true, lease("10.201.0.3"): false, lease("last_reserved_ip.0"): true,
		namespace(live): true, namespace(killed): false,
	} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v, want it to be there: %t", path, err, want)
		}
	}
	left := nft("list", "ruleset")
	for id, want := range map[string]bool{live: true, killed: false, foreign: true} {
		if strings.Contains(left, id[:58]) != want {
			t.Errorf("rules of %s, want %t:\n%s", id, want, left)
		}
	}
}
