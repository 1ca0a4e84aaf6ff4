package sysctl

import "testing"

func TestNameAndPath(t *testing.T) {
	for _, c := range []struct{ written, name, path string }{
		{"net.ipv4.ip_forward", "net.ipv4.ip_forward", "net/ipv4/ip_forward"},
		{"net/ipv4/ip_forward", "net.ipv4.ip_forward", "net/ipv4/ip_forward"},
		{"net.ipv4.conf.eth0/100.forwarding", "net.ipv4.conf.eth0/100.forwarding", "net/ipv4/conf/eth0.100/forwarding"},
		{"net/ipv4/conf/eth0.100/forwarding", "net.ipv4.conf.eth0/100.forwarding", "net/ipv4/conf/eth0.100/forwarding"},
		{"hostname", "hostname", "hostname"},
	} {
		if name, path := Name(c.written), Path(c.written); name != c.name || path != c.path {
			t.Errorf("%q: name %q, path %q; want %q and %q", c.written, name, path, c.name, c.path)
		}
	}
}
