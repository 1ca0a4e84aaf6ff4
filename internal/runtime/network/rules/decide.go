package rules

import (
	"regexp"
	"slices"
	"strings"
)

// Owner identifies the pod of a rule.
type Owner struct {
	// Network is the name of the CNI network. It is empty for host ports in nftables, whose rules do not have it.
	Network string
	// Sandbox is the ID of the sandbox, or the start of a long one.
	Sandbox string
}

// leastID is the shortest start of a sandbox's ID that identifies the sandbox, in bytes. containerd's IDs are 64 random
// hexadecimal digits.
const leastID = 32

// Of reports whether the rule belongs to a sandbox. The sandbox's ID may be cut too.
func (o Owner) Of(sandbox string) bool {
	return min(len(o.Sandbox), len(sandbox)) >= leastID &&
		(strings.HasPrefix(sandbox, o.Sandbox) || strings.HasPrefix(o.Sandbox, sandbox))
}

var (
	masquerading = regexp.MustCompile(`^[0-9a-f]+-[0-9a-f]+, net: (.*), if: [^,]*, id: ([0-9a-f]+)$`)
	hostPort     = regexp.MustCompile(`^[0-9a-f]+$`)
	idInComment  = regexp.MustCompile(`name: "([^"]*)" id: "([0-9a-f]+)`)
	quoted       = regexp.MustCompile(`--comment "((?:[^"\\]|\\.)*)"`)
	ownChain     = regexp.MustCompile(`-j (CNI-[0-9A-Za-z-]+)`)
)

// owner reads the comment of a rule of nftables.
func owner(comment string) (o Owner, ok bool) {
	if m := masquerading.FindStringSubmatch(comment); m != nil {
		return Owner{m[1], m[2]}, true
	}
	if hostPort.MatchString(comment) {
		return Owner{Sandbox: comment}, true
	}
	return Owner{}, false
}

// withoutOwned turns the output of iptables-save into the input of iptables-restore that deletes the matching rules. It
// also deletes the chains of a pod. The result is empty if there is nothing to delete.
func withoutOwned(saved string, match func(Owner) bool) string {
	var rules, flush, chains []string
	for line := range strings.Lines(saved) {
		line = strings.TrimSpace(line)
		rule, ok := strings.CutPrefix(line, "-A ")
		comment := quoted.FindStringSubmatch(rule)
		if !ok || comment == nil {
			continue
		}
		m := idInComment.FindStringSubmatch(strings.ReplaceAll(comment[1], `\"`, `"`))
		if m == nil || !match(Owner{m[1], m[2]}) {
			continue
		}
		rules = append(rules, "-D "+rule)
		if chain := ownChain.FindStringSubmatch(rule); chain != nil && !shared(chain[1]) &&
			!slices.Contains(chains, "-X "+chain[1]) {
			flush, chains = append(flush, "-F "+chain[1]), append(chains, "-X "+chain[1])
		}
	}
	if rules == nil {
		return ""
	}
	return strings.Join(slices.Concat([]string{"*nat"}, rules, flush, chains, []string{"COMMIT", ""}), "\n")
}

// shared reports whether all pods use a chain of the plugin portmap.
func shared(chain string) bool { return strings.HasPrefix(chain, "CNI-HOSTPORT-") }
