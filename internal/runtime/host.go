package runtime

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/containerd/containerd/v2/plugins/snapshots/overlay/overlayutils"
	"golang.org/x/sys/unix"
)

// inspectHost finds the machine's features. The root directory must exist.
func inspectHost(ctx context.Context, c Config) (host, error) {
	lower, err := mayLowerOOMScore()
	if err != nil {
		return host{}, err
	}
	return host{
		ipv6:        ipv6Enabled(),
		overlay:     overlayutils.Supported(c.Root) == nil,
		lowerOOM:    lower,
		filter:      packetFilter(ctx),
		systemdInit: exists("/run/systemd/system"),
	}, nil
}

// mayLowerOOMScore reports whether this process has CAP_SYS_RESOURCE, see proc_pid_oom_score_adj(5).
func mayLowerOOMScore() (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, fmt.Errorf("read own capabilities: %w", err)
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0, nil
}

// ipv6Enabled reports whether new devices get IPv6.
func ipv6Enabled() bool {
	disabled, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/disable_ipv6")
	return err == nil && strings.TrimSpace(string(disabled)) == "0"
}

// packetFilter returns the first tool for masquerading and host ports that works on this machine. Starting a pod takes
// as long with either tool; stopping it is faster with nftables.
func packetFilter(ctx context.Context) string {
	if exec.CommandContext(ctx, "nft", "list", "tables").Run() == nil {
		return "nftables"
	}
	if exec.CommandContext(ctx, "iptables", "-w", "-t", "nat", "-S").Run() == nil {
		return "iptables"
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
