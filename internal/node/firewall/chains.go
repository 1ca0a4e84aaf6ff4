package firewall

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"time"
)

// Names of the kubelet's chains. Other programs look for them, so they are the same for all roots.
const (
	hintChain     = "KUBE-IPTABLES-HINT"
	firewallChain = "KUBE-FIREWALL"
)

// inspection is the time between two looks at the kubelet's chains.
const inspection = time.Minute

// Chains are the iptables chains that a kubelet makes for other programs on a node of a cluster. CNI plugins and
// kube-proxy in a container look for KUBE-IPTABLES-HINT to find out whether the node uses iptables-legacy or
// iptables-nft. KUBE-FIREWALL has the same rule for loopback addresses as kube-proxy. Use ChainsOf to make one.
type Chains struct {
	off      bool
	file     string
	families []family
	log      *slog.Logger
}

// ChainsOf returns the chains of a node. If off, Run makes none. The file says whether an agent of this root directory
// has made chains. ChainsOf changes nothing.
func ChainsOf(off bool, file string, log *slog.Logger) *Chains {
	return &Chains{off, file, []family{{"iptables", true}, {"ip6tables", false}}, log}
}

// family is an address family, as the iptables program for it.
type family struct {
	program string
	// guarded families have addresses that the kernel accepts from a network with route_localnet.
	guarded bool
}

// Run makes the chains, and makes them again when another program has removed them. It returns when ctx ends. The
// chains stay. A machine without iptables has no program that looks for them.
func (c *Chains) Run(ctx context.Context) error {
	if c.off {
		return nil
	}
	if err := os.WriteFile(c.file, nil, 0o600); err != nil {
		return fmt.Errorf("remember the kubelet's iptables chains: %w", err)
	}
	reported := map[string]string{}
	for first := true; ; first = false {
		for _, f := range c.families {
			failed := ""
			if err := f.ensure(ctx, first); err != nil && ctx.Err() == nil {
				failed = err.Error()
				if failed != reported[f.program] {
					c.log.Info("cannot make the kubelet's iptables chains, continuing without them", "program",
						f.program, "err", err)
				}
			}
			reported[f.program] = failed
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(inspection):
		}
	}
}

// Remove removes the chains, if an agent of this root directory has made them. It leaves a chain with rules of others.
func (c *Chains) Remove(ctx context.Context) error {
	if _, err := os.Stat(c.file); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var failed error
	for _, f := range c.families {
		if _, err := exec.LookPath(f.program); err == nil {
			failed = errors.Join(failed, f.remove(ctx))
		}
	}
	if failed != nil {
		return fmt.Errorf("remove the kubelet's iptables chains: %w", failed)
	}
	return nil
}

// guard returns the rules around KUBE-FIREWALL: the jumps to it, and its one rule.
func guard() [][]string {
	return [][]string{
		{"OUTPUT", "-j", firewallChain},
		{"INPUT", "-j", firewallChain},
		{firewallChain, "-m", "comment", "--comment", "block incoming localnet connections",
			"--dst", "127.0.0.0/8", "!", "--src", "127.0.0.0/8",
			"-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "DROP"},
	}
}

// ensure makes what is missing. Unless all is set, it looks only for the chain KUBE-IPTABLES-HINT, which goes when a
// program replaces all rules.
func (f family) ensure(ctx context.Context, all bool) error {
	made, err := f.chain(ctx, "mangle", hintChain)
	if err != nil || !f.guarded || !made && !all {
		return err
	}
	if _, err := f.chain(ctx, "filter", firewallChain); err != nil {
		return err
	}
	for _, rule := range guard() {
		if err := f.insert(ctx, rule); err != nil {
			return err
		}
	}
	return nil
}

// chain makes a chain of a table if it is missing. It reports whether it has made it: another agent or a kubelet may
// make the same one at the same time.
func (f family) chain(ctx context.Context, table, name string) (made bool, err error) {
	there, err := f.succeeds(ctx, "-t", table, "-S", name)
	if err != nil || there {
		return false, err
	}
	made, err = f.succeeds(ctx, "-t", table, "-N", name)
	if err != nil || made {
		return made, err
	}
	return false, runProgram(ctx, f.program, "-t", table, "-S", name)
}

// succeeds runs iptables. It exits with 1 if a chain or a rule is missing, or if a chain to make is there. To remove a
// chain with rules fails with 1 or, on nftables, with 4. To look for or remove a rule that jumps to a missing chain
// fails with 2.
func (f family) succeeds(ctx context.Context, args ...string) (bool, error) {
	err := runProgram(ctx, f.program, args...)
	exit, ok := errors.AsType[*exec.ExitError](err)
	if ok && (exit.ExitCode() == 1 || exit.ExitCode() == conflict && slices.Contains(args, "-X") ||
		exit.ExitCode() == 2 && (slices.Contains(args, "-C") || slices.Contains(args, "-D"))) {
		return false, nil
	}
	return err == nil, err
}

func (f family) remove(ctx context.Context) error {
	if _, err := f.succeeds(ctx, "-t", "mangle", "-X", hintChain); err != nil || !f.guarded {
		return err
	}
	for _, rule := range guard() {
		if err := f.removeAll(ctx, rule); err != nil {
			return err
		}
	}
	_, err := f.succeeds(ctx, "-t", "filter", "-X", firewallChain)
	return err
}
