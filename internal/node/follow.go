package node

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
)

const (
	// settle is how long after the first news the addresses are looked at: those of
	// an interface come and go several at a time.
	settle = time.Second
	// listenAgain is when the kernel's news are asked for anew after they ended.
	listenAgain = 5 * time.Second
)

// Addresses are the node's as long as its agent runs: they follow the machine's
// network, as a lease of DHCP that ends. They are safe for concurrent use.
type Addresses struct {
	config  Config
	name    string
	changed func()

	mu  sync.Mutex
	ips []netip.Addr
}

// Follow begins with what was read with c. changed is called after each change.
func Follow(c Config, f Facts, changed func()) *Addresses {
	return &Addresses{config: c, name: f.Name, changed: changed, ips: f.IPs}
}

// IPs are the addresses now, as Facts has them.
func (a *Addresses) IPs() []netip.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ips
}

// Run follows the machine's interfaces and routes until ctx ends. It sleeps while
// the kernel tells nothing.
func (a *Addresses) Run(ctx context.Context) error {
	for {
		err := a.listen(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		a.config.Log.Warn("Cannot follow the addresses of this machine", "err", err, "again in", listenAgain)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(listenAgain):
		}
	}
}

// listen looks at the addresses whenever the kernel has told of a change. It
// returns when it tells no more, as after more news than its buffer has room for.
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
	a.look() // for what changed before
	var settled <-chan time.Time
	for {
		var open bool
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-settled:
			a.look()
			settled = nil
			continue
		case _, open = <-addresses:
		case _, open = <-routes:
		}
		if !open {
			return errors.New("the kernel's news have ended")
		}
		if settled == nil {
			settled = time.After(settle)
		}
	}
}

// look takes the addresses as they are. A machine that has lost its network for
// now keeps those that it had.
func (a *Addresses) look() {
	host, err := hostAddresses()
	var ips []netip.Addr
	if err == nil {
		ips, err = a.config.nodeIPs(a.name, host)
	}
	if err != nil {
		a.config.Log.Debug("The addresses of the node stay", "err", err)
		return
	}
	a.mu.Lock()
	was := a.ips
	a.ips = ips
	a.mu.Unlock()
	if !slices.Equal(was, ips) {
		a.config.Log.Info("The addresses of the node have changed", "from", was, "to", ips)
		a.changed()
	}
}
