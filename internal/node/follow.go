package node

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"github.com/berth-run/berth/internal/base/routewatch"
	"github.com/berth-run/berth/internal/base/wake"
)

// Addresses are the node's addresses. They follow the machine's network while the agent runs, for example when a DHCP
// lease ends. They are safe for concurrent use.
type Addresses struct {
	config  Config
	name    string
	changed wake.Signal

	mu  sync.Mutex
	ips []netip.Addr
}

// Follow starts with the addresses in f, which were read with c.
func Follow(c Config, f Facts) *Addresses {
	return &Addresses{config: c, name: f.Name, changed: wake.New(), ips: f.IPs}
}

// Changed returns the channel that receives after the addresses have changed. One loop reads it.
func (a *Addresses) Changed() <-chan struct{} { return a.changed.C() }

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
		a.changed.Wake()
	}
}
