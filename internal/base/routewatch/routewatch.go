package routewatch

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/berth-run/berth/internal/base/retry"
)

const (
	// settle is the delay between the first change and the call of update. The addresses of an interface usually change
	// several at a time.
	settle = time.Second
	// again is the delay before a new subscription after the previous one ended.
	again = 5 * time.Second
)

// Run calls update at once, and after each change of the machine's addresses or routes, until ctx ends. It returns
// ctx's error.
func Run(ctx context.Context, update func(), log *slog.Logger) error {
	for {
		err := listen(ctx, update)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		log.Warn("cannot watch the addresses and routes of this machine, retrying", "err", err, "delay", again)
		if retry.Sleep(ctx, again) != nil {
			return ctx.Err()
		}
	}
}

// listen calls update after each notification of the kernel. It returns when the subscription ends, for example because
// its buffer overflowed.
func listen(ctx context.Context, update func()) error {
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
	update() // notice changes that precede the subscription
	var settled <-chan time.Time
	for {
		var open bool
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-settled:
			update()
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
