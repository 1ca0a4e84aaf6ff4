package rules

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/base/roottest"
)

// nftRules are the rules that the plugins bridge and portmap make for a pod, and one of another program.
const nftRules = `
add table inet cni_plugins_masquerade
add chain inet cni_plugins_masquerade masq_checks
add rule inet cni_plugins_masquerade masq_checks ip saddr 10.0.0.2 ip daddr != 10.0.0.0/24 masquerade comment ` +
	`"01-02, net: n, if: eth0, id: ID"
add rule inet cni_plugins_masquerade masq_checks ip saddr 10.0.0.9 accept comment "another program's"
add table ip6 cni_hostport
add chain ip6 cni_hostport hostports
add rule ip6 cni_hostport hostports tcp dport 80 dnat to [fd00::2]:80 comment "ID"
`

func run(t *testing.T, stdin, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// iptables-save runs only if the kernel may have rules for pods in the table of iptables. Rules of other programs and
// rules for pods in nftables do not count.
func TestMayHaveRulesAsksTheKernel(t *testing.T) {
	if !roottest.OwnNetwork(t) {
		return
	}
	check := func(when string, want bool) {
		t.Helper()
		for _, i := range families() {
			if got := i.mayHaveRules(); got != want {
				t.Errorf("%s, %s: %t, want %t", when, i.command, got, want)
			}
		}
	}
	restore := func(program, text string) {
		t.Helper()
		for _, version := range []string{"iptables", "ip6tables"} {
			run(t, text, version+program)
		}
	}
	const foreign = "*nat\n:OTHER - [0:0]\n-A POSTROUTING -j OTHER\nCOMMIT\n"
	check("without any rule", false)
	run(t, strings.ReplaceAll(nftRules, "ID", one), "nft", "-f", "-")
	check("with rules in nftables", false)
	restore("-nft-restore", foreign)
	check("with another program's chain", false)
	restore("-nft-restore", "*nat\n:CNI-a - [0:0]\nCOMMIT\n")
	check("with a chain of the plugins", true)
	run(t, "", "nft", "flush", "ruleset")
	check("after a flush", false)
	if _, err := exec.LookPath("iptables-legacy-restore"); err != nil {
		t.Skip("iptables-legacy-restore is not installed")
	}
	restore("-legacy-restore", foreign)
	check("with the table of the kernel's own iptables", true)
}

func TestRemove(t *testing.T) {
	if !roottest.OwnNetwork(t) {
		return
	}
	for _, id := range []string{one, two} {
		run(t, strings.ReplaceAll(nftRules, "ID", id), "nft", "-f", "-")
	}
	chains := ":CNI-HOSTPORT-DNAT - [0:0]\n:CNI-a - [0:0]\n:CNI-DN-a - [0:0]\n:CNI-b - [0:0]\n:CNI-DN-b - [0:0]\n"
	run(t, strings.Replace(saved(one, two), ":CNI-HOSTPORT-DNAT - [0:0]\n", chains, 1), "iptables-restore")
	before, err := List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := Remove(t.Context(), func(o Owner) bool { return o.Of(one) }); err != nil {
		t.Fatal(err)
	}
	after, err := List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := slices.DeleteFunc(before, func(o Owner) bool { return o.Of(one) })
	if diff := cmp.Diff(want, after); diff != "" || len(after) != 5 {
		t.Errorf("%d rules, (-want +got):\n%s", len(after), diff)
	}
	left := run(t, "", "nft", "list", "ruleset") + run(t, "", "iptables-save")
	if strings.Contains(left, one) || strings.Contains(left, "CNI-a") || strings.Contains(left, "CNI-DN-a") {
		t.Errorf("left:\n%s", left)
	}
	for _, stays := range []string{"another program's", "CNI-b", "CNI-DN-b", "CNI-HOSTPORT-DNAT"} {
		if !strings.Contains(left, stays) {
			t.Errorf("%s is gone:\n%s", stays, left)
		}
	}
}
