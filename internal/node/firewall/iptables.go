package firewall

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os/exec"
)

// ipTables are the rules in the chains of iptables, with the name in their comments. They are for kernels without
// nftables.
type ipTables struct {
	name    string
	private netip.Addr
}

// rules are the rules in the language of iptables(8).
func (i ipTables) rules() [][]string {
	rules := [][]string{i.rule(networkComment, "INPUT", "!", "-i", "lo", "-d", "127.0.0.0/8",
		"-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT")}
	if i.private.IsValid() {
		rules = append(rules, i.rule(privateComment, "OUTPUT", "-d", i.private.String()+"/32",
			"-m", "owner", "!", "--uid-owner", "0"))
	}
	return rules
}

func (i ipTables) rule(comment string, match ...string) []string {
	return append(match, "-m", "comment", "--comment", i.name+", "+comment, "-j", "DROP")
}

// inet is the program for the rules.
var inet = family{program: "iptables"}

func (i ipTables) present(ctx context.Context) (bool, error) {
	for _, rule := range i.rules() {
		if there, err := inet.has(ctx, rule); err != nil || !there {
			return false, err
		}
	}
	return true, nil
}

// write inserts the missing rules before those that accept packets.
func (i ipTables) write(ctx context.Context) error {
	for _, rule := range i.rules() {
		if err := inet.insert(ctx, rule); err != nil {
			return err
		}
	}
	return nil
}

func (i ipTables) remove(ctx context.Context) error {
	for _, rule := range i.rules() {
		if err := inet.removeAll(ctx, rule); err != nil {
			return err
		}
	}
	return nil
}

// has reports whether the table filter has a rule.
func (f family) has(ctx context.Context, rule []string) (bool, error) {
	return f.succeeds(ctx, append([]string{"-t", "filter", "-C"}, rule...)...)
}

// insert inserts a rule before the others of its chain in the table filter, unless it is there.
func (f family) insert(ctx context.Context, rule []string) error {
	there, err := f.has(ctx, rule)
	if err != nil || there {
		return err
	}
	return runProgram(ctx, f.program, append([]string{"-t", "filter", "-I"}, rule...)...)
}

// removeAll removes each copy of a rule from the table filter.
func (f family) removeAll(ctx context.Context, rule []string) error {
	for {
		there, err := f.has(ctx, rule)
		if err != nil || !there {
			return err
		}
		// It exits with 1 if another program has removed the last copy since.
		if _, err := f.succeeds(ctx, append([]string{"-t", "filter", "-D"}, rule...)...); err != nil {
			return err
		}
	}
}

// conflict is the exit code of iptables for a change that the kernel refuses. On nftables that is also a change of a
// rule or a chain that another program has changed since iptables read it: there iptables has no lock.
const conflict = 4

// runProgram runs iptables or ip6tables. It waits while another program changes the rules, and tries up to four times
// if another one has changed them.
func runProgram(ctx context.Context, program string, args ...string) error {
	for try := 1; ; try++ {
		cmd := exec.CommandContext(ctx, program, append([]string{"-w"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err == nil {
			return nil
		}
		if cmd.ProcessState.ExitCode() != conflict || try == 4 {
			return fmt.Errorf("run %s: %w: %s", program, err, bytes.TrimSpace(out))
		}
	}
}
