package node

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/berth-run/berth/internal/base/retry"
)

const (
	// settle is the delay between the first change and the reading of the addresses. The addresses of an interface
	// usually change several at a time.
	settle = time.Second
	// listenAgain is the delay before a new subscription after the previous one ended.
	listenAgain = 5 * time.Second
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

// Run follows the machine's interfaces and routes until ctx ends. It waits for notifications of the kernel.
func (a *Addresses) Run(ctx context.Context) error {
	for {
		err := a.listen(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		a.config.Log.Warn("cannot watch the addresses of this machine, retrying", "err", err, "delay", listenAgain)
		if retry.Sleep(ctx, listenAgain) != nil {
			return ctx.Err()
		}
	}
}

// listen updates the addresses after each notification of the kernel. It returns when the subscription ends, for
// example because its buffer overflowed.
func (a *Addresses) listen(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	addresses, routes := make(chan netlink.AddrUpdate, 16), make(chan netlink.RouteUpdate, 16)
	if err := netlink.AddrSubscribeWithOptions(addresses, ctx.Done(),
		netlink.AddrSubscribeOptions{ErrorCallback: cancel}); err != nil {
		return err
	}
	if err := netlink.RouteSubscribeWithOptions(routes, ctx.Done(),
		netlink.RouteSubscribeOptions{ErrorCallback: cancel}); err != nil {
		return err
	}
	a.update() // notice changes that precede the subscription
	var settled <-chan time.Time
	for {
		var open bool
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-settled:
			a.update()
			settled = nil
			continue
		case _, open = <-addresses:
		case _, open = <-routes:
		}
		if !open {
			return errors.New("the subscription to address changes has ended")
		}
		if settled == nil {
			settled = time.After(settle)
		}
	}
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
