package packetfilter

import (
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/node/firewall"
)

// Firewall returns the firewall of loopback addresses.
func Firewall(c *config.Config, log *slog.Logger) *firewall.Firewall {
	return firewall.New(firewall.Options{
		Name: strings.TrimSuffix("berth_"+c.Instance(), "_"), Off: c.Node.OpenLoopback,
		Private: c.StreamAddress(), Log: log.With("part", "firewall"),
	})
}

// Chains returns the chains that a kubelet makes for other programs. Only a node of a cluster makes them.
func Chains(c *config.Config, log *slog.Logger) *firewall.Chains {
	return firewall.ChainsOf(c.Node.OpenLoopback || c.Cluster == nil, filepath.Join(c.RootDir, "iptables-chains"),
		log.With("part", "firewall"))
}
