package firewall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
)

// ipTables is the name in the comment of the rule in the iptables chain INPUT. It is for kernels without nftables.
type ipTables struct{ name string }

// rule is the rule in the language of iptables(8).
func (i ipTables) rule() []string {
	return []string{"INPUT", "!", "-i", "lo", "-d", "127.0.0.0/8",
		"-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT",
		"-m", "comment", "--comment", i.name + ", " + comment, "-j", "DROP"}
}

func (i ipTables) present(ctx context.Context) (bool, error) {
	err := run(ctx, append([]string{"-C"}, i.rule()...)...)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return false, nil
	}
	return err == nil, err
}

// write inserts the rule before those that accept packets.
func (i ipTables) write(ctx context.Context) error {
	return run(ctx, append([]string{"-I"}, i.rule()...)...)
}

func (i ipTables) remove(ctx context.Context) error {
	for {
		there, err := i.present(ctx)
		if err != nil || !there {
			return err
		}
		if err := run(ctx, append([]string{"-D"}, i.rule()...)...); err != nil {
			return err
		}
	}
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
