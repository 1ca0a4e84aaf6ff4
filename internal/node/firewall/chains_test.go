package firewall

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/base/roottest"
)

// chainsOf lists the kubelet's chains and rules in both families.
func chainsOf(t *testing.T) string {
	t.Helper()
	all := command(t, "iptables-save") + command(t, "ip6tables-save")
	var kept []string
	for line := range strings.Lines(all) {
		if strings.Contains(line, "KUBE-") {
			line, _, _ = strings.Cut(line, " [") // counters
			kept = append(kept, strings.TrimSpace(line))
		}
	}
	return strings.Join(kept, "\n")
}

// wantChains is the result of a kubelet.
const wantChains = `:KUBE-IPTABLES-HINT -
:KUBE-FIREWALL -
-A INPUT -j KUBE-FIREWALL
-A OUTPUT -j KUBE-FIREWALL
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m ` +
	`conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
:KUBE-IPTABLES-HINT -`

// The order of the tables in the output is not fixed.
func sameLines(a, b string) bool {
	count := map[string]int{}
	for line := range strings.Lines(a) {
		count[strings.TrimSpace(line)]++
	}
	for line := range strings.Lines(b) {
		count[strings.TrimSpace(line)]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

func TestChainsOfAKubelet(t *testing.T) {
	if !roottest.OwnNetwork(t) {
		return
	}
	file := filepath.Join(t.TempDir(), "chains")
	c := ChainsOf(false, file, slog.New(slog.DiscardHandler))
	ensure := func(all bool) {
		t.Helper()
		for _, f := range c.families {
			if err := f.ensure(t.Context(), all); err != nil {
				t.Fatal(err)
			}
		}
		if got := chainsOf(t); !sameLines(got, wantChains) {
			t.Errorf("chains:\n%s\nwant:\n%s", got, wantChains)
		}
	}
	ensure(true)
	ensure(true) // a rule that is there is not written twice, also if kube-proxy has written it
	command(t, "nft", "flush", "ruleset")
	ensure(false)
	command(t, "iptables", "-A", firewallChain, "-j", "RETURN")
	if err := c.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := chainsOf(t); !strings.Contains(got, hintChain) {
		t.Errorf("the chains of another root or of a kubelet are removed, left: %s", got)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := chainsOf(t); !sameLines(got, ":KUBE-FIREWALL -\n-A KUBE-FIREWALL -j RETURN") {
		t.Errorf("after Remove the chain with a rule of somebody else remains, and nothing else; got:\n%s", got)
	}
	command(t, "nft", "flush", "ruleset")
	if err := c.Remove(t.Context()); err != nil {
		t.Errorf("another reset has removed everything already: %v", err)
	}
}

func TestRunMakesTheChainsAtOnce(t *testing.T) {
	if !roottest.OwnNetwork(t) {
		return
	}
	for _, off := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		file := filepath.Join(t.TempDir(), "chains")
		go func() { ended <- ChainsOf(off, file, slog.New(slog.DiscardHandler)).Run(ctx) }()
		if !off {
			eventually.True(t, "the chains", func() bool { return sameLines(chainsOf(t), wantChains) })
			cancel()
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		cancel()
		if got := chainsOf(t); off && got != "" {
			t.Errorf("chains although they are off: %s", got)
		}
		if _, err := os.Stat(file); off != errors.Is(err, fs.ErrNotExist) {
			t.Errorf("off %t: the file that remembers the chains: %v", off, err)
		}
	}
}

// Several agents, and the kubelet, may make and remove the same chains at the same time.
func TestChainsOfManyAgents(t *testing.T) {
	if !roottest.OwnNetwork(t) {
		return
	}
	agents := make([]*Chains, 4)
	for i := range agents {
		file := filepath.Join(t.TempDir(), "chains")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		agents[i] = ChainsOf(false, file, slog.New(slog.DiscardHandler))
	}
	all := func(what string, do func(*Chains) error) {
		t.Helper()
		var done sync.WaitGroup
		for _, c := range agents {
			done.Go(func() {
				if err := do(c); err != nil {
					t.Errorf("%s at the same time: %v", what, err)
				}
			})
		}
		done.Wait()
	}
	for range 10 {
		all("make", func(c *Chains) error {
			var failed error
			for _, f := range c.families {
				failed = errors.Join(failed, f.ensure(t.Context(), true))
			}
			return failed
		})
		all("remove", func(c *Chains) error { return c.Remove(t.Context()) })
		if got := chainsOf(t); got != "" {
			t.Fatalf("left after all agents have removed the chains:\n%s", got)
		}
	}
}
