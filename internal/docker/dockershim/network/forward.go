package network

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
)

// userChain is the chain of iptables that dockerd jumps to first for forwarded packets, and leaves to the machine's
// administrator. It exists only if dockerd manages iptables. dockerd then drops all other forwarded packets.
const userChain = "DOCKER-USER"

// Accept lets packets of pods of the built-in network pass dockerd's rules. It does nothing if dockerd does not manage
// iptables. CNI plugins make such rules for their packets themselves.
func (n *Network) Accept(ctx context.Context) error {
	if n.config.BuiltIn == nil {
		return nil
	}
	bridge := n.config.BuiltIn.Bridge()
	var errs []error
	for _, program := range []string{"iptables", "ip6tables"} {
		if exec.CommandContext(ctx, program, "-w", "-n", "-L", userChain).Run() != nil {
			continue // there is no such chain, or no such program
		}
		for _, direction := range []string{"-i", "-o"} {
			rule := []string{userChain, direction, bridge, "-j", "ACCEPT"}
			if exec.CommandContext(ctx, program, append([]string{"-w", "-C"}, rule...)...).Run() == nil {
				continue
			}
			out, err := exec.CommandContext(ctx, program, append([]string{"-w", "-I"}, rule...)...).CombinedOutput()
			if err != nil {
				errs = append(errs,
					fmt.Errorf("accept packets of pods in chain %s: %s: %w: %s", userChain, program, err, out))
			}
		}
	}
	return errors.Join(errs...)
}
