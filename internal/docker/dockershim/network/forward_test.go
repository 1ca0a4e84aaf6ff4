package network

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/base/roottest"
)

// bridge is a built-in network that has only the name of its bridge.
type bridge struct{ BuiltIn }

func (bridge) Bridge() string { return "berth-test" }

// dockerd drops forwarded packets. The rules for the bridge of pods are added once to the chain that dockerd leaves to
// others, for each family, and not without that chain.
func TestPacketsOfPodsPassDockersRules(t *testing.T) {
	if !roottest.OwnNetwork(t) {
		return
	}
	run := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
		return string(out)
	}
	n := New(Config{BuiltIn: bridge{}})
	if err := n.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	programs := []string{"iptables", "ip6tables"}
	for _, program := range programs {
		if rules := run(program, "-S"); strings.Contains(rules, "berth-test") {
			t.Errorf("without dockerd's chain: %s", rules)
		}
		run(program, "-N", userChain)
		run(program, "-A", userChain, "-j", "RETURN")
		run(program, "-A", "FORWARD", "-j", userChain)
		run(program, "-P", "FORWARD", "DROP")
	}
	for range 2 {
		if err := n.Accept(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range programs {
		const want = `-N DOCKER-USER
-A DOCKER-USER -o berth-test -j ACCEPT
-A DOCKER-USER -i berth-test -j ACCEPT
-A DOCKER-USER -j RETURN
`
		if rules := run(program, "-S", userChain); rules != want {
			t.Errorf("%s: %s, want %s", program, rules, want)
		}
	}
}
