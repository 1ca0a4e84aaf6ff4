package firewall

import (
	"bytes"
	"context"
	"errors"
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

func (i ipTables) present(ctx context.Context) (bool, error) {
	for _, rule := range i.rules() {
		if there, err := has(ctx, rule); err != nil || !there {
			return false, err
		}
	}
	return true, nil
}

// has reports whether iptables has a rule.
func has(ctx context.Context, rule []string) (bool, error) {
	err := run(ctx, append([]string{"-C"}, rule...)...)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return false, nil
	}
	return err == nil, err
}

// write inserts the missing rules before those that accept packets.
func (i ipTables) write(ctx context.Context) error {
	for _, rule := range i.rules() {
		there, err := has(ctx, rule)
		if err == nil && !there {
			err = run(ctx, append([]string{"-I"}, rule...)...)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (i ipTables) remove(ctx context.Context) error {
	for _, rule := range i.rules() {
		for {
			there, err := has(ctx, rule)
			if err != nil {
				return err
			}
			if !there {
				break
			}
			if err := run(ctx, append([]string{"-D"}, rule...)...); err != nil {
				return err
			}
		}
	}
	return nil
}

// run runs iptables on the table filter.
func run(ctx context.Context, args ...string) error { return runProgram(ctx, "iptables", args...) }

// runProgram runs iptables or ip6tables. It waits while another program changes the rules.
func runProgram(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, append([]string{"-w"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s: %w: %s", program, err, bytes.TrimSpace(out))
	}
	return nil
}
