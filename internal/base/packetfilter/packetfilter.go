package packetfilter

import (
	"context"
	"os/exec"

	"github.com/google/nftables"
)

// Nftables reports whether the kernel has nftables and this process may use it.
func Nftables() bool {
	c, err := nftables.New()
	if err != nil {
		return false
	}
	_, err = c.ListTables()
	return err == nil
}

// IPTables reports whether the program iptables is installed and can read a table, "filter" or "nat".
func IPTables(ctx context.Context, table string) bool {
	return exec.CommandContext(ctx, "iptables", "-w", "-t", table, "-S", "OUTPUT").Run() == nil
}
