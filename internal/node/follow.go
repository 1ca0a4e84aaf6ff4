package node

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"github.com/berth-run/berth/internal/base/routewatch"
)

// Addresses are the node's addresses. They follow the machine's network while the agent runs, for example when a DHCP
// lease ends. They are safe for concurrent use.
type Addresses struct {
	config  Config
	name    string
	changed func()

	mu  sync.Mutex
	ips []netip.Addr
}

// Follow starts with the addresses in f, which were read with c. changed is called after each change.
func Follow(c Config, f Facts, changed func()) *Addresses {
	return &Addresses{config: c, name: f.Name, changed: changed, ips: f.IPs}
}

// IPs returns the current addresses, in the form of Facts.IPs.
func (a *Addresses) IPs() []netip.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ips
}

// Run follows the machine's interfaces and routes until ctx ends.
func (a *Addresses) Run(ctx context.Context) error {
	return routewatch.Run(ctx, a.update, a.config.Log)
}

// update reads the addresses. A machine without a network keeps its previous addresses.
func (a *Addresses) update() {
	host, err := hostAddresses()
	var ips []netip.Addr
	if err == nil {
		ips, err = a.config.nodeIPs(a.name, host)
	}
	if err != nil {
		a.config.Log.Debug("cannot read new addresses, keeping the current ones", "err", err)
		return
	}
	a.mu.Lock()
	was := a.ips
	a.ips = ips
	a.mu.Unlock()
	if !slices.Equal(was, ips) {
		a.config.Log.Info("addresses of the node changed", "from", was, "to", ips)
		a.changed()
	}
}
