package node

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/berth-run/berth/internal/base/roottest"
)

func addrs(texts ...string) (all []netip.Addr) {
	for _, t := range texts {
		all = append(all, netip.MustParseAddr(t))
	}
	return all
}

func TestOfName(t *testing.T) {
	host := addrs("127.0.0.1", "192.0.2.1", "192.0.2.2", "2001:db8::1")
	for title, test := range map[string]struct {
		found []netip.Addr
		bind  netip.Addr
		want  netip.Addr
	}{
		"nothing":             {},
		"loopback, elsewhere": {found: addrs("127.0.0.1", "192.0.2.9")},
		"the first":           {found: addrs("192.0.2.2", "192.0.2.1"), want: host[2]},
		"IPv4 first":          {found: addrs("2001:db8::1", "192.0.2.1"), want: host[1]},
		"IPv6 alone":          {found: addrs("2001:db8::1"), want: host[3]},
		"IPv6 asked for":      {found: addrs("192.0.2.1", "2001:db8::1"), bind: netip.IPv6Unspecified(), want: host[3]},
		"IPv4 asked for":      {found: addrs("2001:db8::1"), bind: netip.IPv4Unspecified()},
		"mapped":              {found: addrs("::ffff:192.0.2.1"), want: host[1]},
	} {
		t.Run(title, func(t *testing.T) {
			if got, ok := ofName(test.found, host, test.bind); got != test.want || ok != test.want.IsValid() {
				t.Errorf("%v, %v; want %v", got, ok, test.want)
			}
		})
	}
}

func TestFollow(t *testing.T) {
	if !roottest.OwnNetwork(t) {
		return
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "b0"}}
	must(netlink.LinkAdd(link))
	must(netlink.LinkSetUp(link))
	address := func(text string) *netlink.Addr {
		a, err := netlink.ParseAddr(text)
		must(err)
		return a
	}
	gateway := func(text string) {
		must(netlink.RouteReplace(&netlink.Route{LinkIndex: link.Index, Gw: netip.MustParseAddr(text).AsSlice()}))
	}
	must(netlink.AddrAdd(link, address("192.0.2.10/24")))
	gateway("192.0.2.1")

	c := Config{Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	host, err := hostAddresses()
	must(err)
	ips, err := c.nodeIPs("node", host)
	must(err)
	if !slices.Equal(ips, addrs("192.0.2.10")) {
		t.Fatalf("addresses of the node are %v", ips)
	}
	a := Follow(c, Facts{Name: "node", IPs: ips})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- a.Run(ctx) }()

	must(netlink.AddrDel(link, address("192.0.2.10/24"))) // this removes the route too
	must(netlink.AddrAdd(link, address("198.51.100.7/24")))
	gateway("198.51.100.1")
	select {
	case <-a.Changed():
	case <-time.After(20 * time.Second):
		t.Error("the change was not noticed")
	}
	if got := a.IPs(); !slices.Equal(got, addrs("198.51.100.7")) {
		t.Errorf("addresses are %v", got)
	}
	must(netlink.LinkDel(link))
	a.update()
	if got := a.IPs(); !slices.Equal(got, addrs("198.51.100.7")) {
		t.Errorf("without a network, addresses are %v", got)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
