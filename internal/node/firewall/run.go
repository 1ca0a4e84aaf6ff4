package firewall

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/wake"
)

const (
	// poll is the time between two looks at the rules of iptables, whose changes the kernel does not announce.
	poll = 30 * time.Second
	// again is the time until the next try after the rules could not be read or written.
	again = 5 * time.Second
	// groupNftables is the multicast group of netlink with the changes of nftables (NFNLGRP_NFTABLES).
	groupNftables = 7
)

// Run keeps the rules until ctx ends. They stay. If they are turned off, Run has nothing to do, since Ensure has
// removed them.
func (f *Firewall) Run(ctx context.Context) error {
	if f.o.Off {
		return nil
	}
	changed, wait := wake.New(), time.Duration(0)
	if socket := f.subscribe(ctx); socket != nil {
		var listener sync.WaitGroup
		listener.Go(func() { f.listen(socket, changed) })
		defer listener.Wait()
		defer socket.Close()
	} else {
		wait = poll
	}
	reported := ""
	for first := true; ; first = false {
		next, failed := wait, ""
		written, err := f.ensure(ctx)
		switch {
		case err != nil:
			failed, next = err.Error(), again
			if failed != reported {
				f.o.Log.Error("cannot protect loopback addresses of this machine from pods, retrying", "err", err,
					"delay", again)
			}
		case written && !first:
			f.o.Log.Warn(
				"a rule that protects loopback addresses was removed by another program, it is written again",
				"table", f.o.Name)
		}
		reported = failed
		var timer <-chan time.Time
		if next > 0 {
			timer = time.After(next)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed.C():
		case <-timer:
		}
	}
}

// subscribe returns a socket that receives the changes of nftables. It returns nil if the rules are iptables' own.
func (f *Firewall) subscribe(ctx context.Context) *nl.NetlinkSocket {
	filter, err := f.filter(ctx)
	if _, ok := filter.(nftable); err != nil || !ok {
		return nil
	}
	socket, err := nl.Subscribe(unix.NETLINK_NETFILTER, groupNftables)
	if err != nil {
		f.o.Log.Warn("cannot watch the packet filter, looking at the rules instead", "err", err, "every", poll)
		return nil
	}
	return socket
}

// listen wakes Run when something is deleted from the table, until the socket is closed.
func (f *Firewall) listen(socket *nl.NetlinkSocket, changed wake.Signal) {
	for {
		messages, _, err := socket.Receive()
		switch {
		case errors.Is(err, unix.ENOBUFS): // the kernel dropped messages
			changed.Wake()
			continue
		case err != nil:
			return
		}
		for _, m := range messages {
			if deletes(m.Header.Type, m.Data, f.o.Name) {
				changed.Wake()
			}
		}
	}
}
