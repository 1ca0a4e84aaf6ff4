package firewall

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/base/roottest"
)

const patience = 30 * time.Second

// private is the address that only root may send to.
var private = netip.MustParseAddr("127.65.1.2")

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func sysctl(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+path, []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
}

func TestFilters(t *testing.T) {
	if !roottest.OwnNetwork(t) {
		return
	}
	for _, f := range []filter{
		nftable{"berth_test", private}, ipTables{"berth_test", private},
		nftable{name: "berth_test"}, ipTables{name: "berth_test"},
	} {
		for _, step := range []struct {
			name string
			do   func(context.Context) error
			want bool
		}{
			{"remove nothing", f.remove, false}, {"write", f.write, true}, {"write again", f.write, true},
			{"remove", f.remove, false},
		} {
			if err := step.do(t.Context()); err != nil {
				t.Fatalf("%T: %s: %v", f, step.name, err)
			}
			if got, err := f.present(t.Context()); err != nil || got != step.want {
				t.Errorf("%T: after %s: present %t, %v; want %t", f, step.name, got, err, step.want)
			}
		}
	}
	for _, left := range []string{command(t, "nft", "list", "ruleset"), command(t, "iptables", "-S")} {
		if strings.Contains(left, "berth_test") {
			t.Errorf("left: %s", left)
		}
	}
}

// Other programs remove a rule, a chain, the table and all tables. The rules are back each time, and are still there
// when Run ends.
func TestRunWritesTheRulesAgain(t *testing.T) {
	if !roottest.OwnNetwork(t) {
		return
	}
	rules := nftable{"berth_test", private}
	f := New(Options{Name: rules.name, Private: private, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	for _, remove := range []string{
		"", "flush chain ip berth_test input", "flush chain ip berth_test output", "delete table ip berth_test",
		"flush ruleset",
	} {
		if remove != "" {
			command(t, "nft", remove)
		}
		eventually.True(t, fmt.Sprintf("the rules are back after %q", remove), func() bool {
			there, err := rules.present(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return there
		})
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if there, err := rules.present(t.Context()); err != nil || !there {
		t.Errorf("after Run: present %t, %v", there, err)
	}
}

func TestOffRemovesTheRules(t *testing.T) {
	if !roottest.OwnNetwork(t) {
		return
	}
	log := slog.New(slog.DiscardHandler)
	if err := New(Options{Name: "berth_test", Off: true, Log: log}).Run(t.Context()); err != nil {
		t.Error(err)
	}
	for _, off := range []bool{false, true} {
		if err := New(Options{Name: "berth_test", Off: off, Log: log}).Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		if there, err := (nftable{name: "berth_test"}).present(t.Context()); err != nil || there == off {
			t.Errorf("off %t: present %t, %v", off, there, err)
		}
	}
}

// A neighbour sends packets to a loopback address over an interface with route_localnet. They arrive without the rule,
// and not with it. Connections that the machine itself leads there by DNAT arrive in both cases.
func TestRuleDropsPacketsOfNeighbours(t *testing.T) {
	if !roottest.OwnNetwork(t) {
		return
	}
	n := newNeighbour(t)
	listener, err := net.Listen("tcp4", "127.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	command(t, "nft", "add table ip led; add chain ip led prerouting { type nat hook prerouting priority dstnat; }; "+
		"add rule ip led prerouting ip daddr 10.0.0.1 tcp dport 81 dnat to 127.0.0.1:80")
	direct, redirected := netip.MustParseAddrPort("127.0.0.1:80"), netip.MustParseAddrPort("10.0.0.1:81")
	if err := n.dial(direct); err != nil {
		t.Fatalf("without the rule: %v", err)
	}
	if err := n.dial(redirected); err != nil {
		t.Fatalf("without the rule, by DNAT: %v", err)
	}
	f := nftable{name: "berth_test"}
	if err := f.write(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.dial(redirected); err != nil {
		t.Errorf("by DNAT: %v", err)
	}
	if dropped(t, f, 0) != 0 {
		t.Error("packets of a DNAT connection were dropped")
	}
	done := make(chan error, 1)
	go func() { done <- n.dial(direct) }()
	for dropped(t, f, 0) == 0 {
		select {
		case err := <-done:
			t.Fatalf("the dial to %s has ended (%v) and no packet was dropped", direct, err)
		case <-time.After(time.Millisecond):
		}
	}
	if err := f.remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil { // the kernel sends its SYN again
		t.Errorf("after the rule is removed: %v", err)
	}
}

// Root connects to the private address. The packets of another user's program are dropped until the rules are removed.
func TestOnlyRootReachesThePrivateAddress(t *testing.T) {
	if !roottest.OwnNetwork(t) {
		return
	}
	command(t, "ip", "link", "set", "lo", "up")
	listener, err := net.Listen("tcp4", netip.AddrPortFrom(private, 80).String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	f := nftable{"berth_test", private}
	if err := f.write(t.Context()); err != nil {
		t.Fatal(err)
	}
	connect := fmt.Sprintf("exec 3<>/dev/tcp/%s/80", private)
	command(t, "bash", "-c", connect)
	if dropped(t, f, 1) != 0 {
		t.Error("packets of root were dropped")
	}
	stranger := exec.CommandContext(t.Context(), "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "bash",
		"-c", connect)
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- stranger.Wait() }()
	for dropped(t, f, 1) == 0 {
		select {
		case err := <-ended:
			t.Fatalf("the stranger has ended (%v) and no packet was dropped", err)
		case <-time.After(time.Millisecond):
		}
	}
	if err := f.remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil { // the kernel sends its SYN again
		t.Errorf("after the rules are removed: %v", err)
	}
}

// dropped is the counter of one of the rules.
func dropped(t *testing.T, f nftable, rule int) uint64 {
	t.Helper()
	c, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	rules, err := c.GetRules(f.table(), f.rules()[rule].Chain)
	if err != nil || len(rules) != 1 {
		t.Fatalf("%d rules, %v", len(rules), err)
	}
	for _, e := range rules[0].Exprs {
		if counter, ok := e.(*expr.Counter); ok {
			return counter.Packets
		}
	}
	t.Fatal("the rule has no counter")
	return 0
}

// neighbour stands for another machine, 10.0.0.2. It sends packets to loopback addresses to this machine, 10.0.0.1.
type neighbour struct {
	dials   chan netip.AddrPort
	results chan error
}

func (n *neighbour) dial(to netip.AddrPort) error {
	n.dials <- to
	return <-n.results
}

func newNeighbour(t *testing.T) *neighbour {
	t.Helper()
	n := &neighbour{make(chan netip.AddrPort), make(chan error)}
	t.Cleanup(func() { close(n.dials) })
	thread, arranged := make(chan int), make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its namespace
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
		}
		thread <- unix.Gettid()
		<-arranged
		for to := range n.dials {
			dialer := net.Dialer{Timeout: patience}
			conn, err := dialer.DialContext(t.Context(), "tcp4", to.String())
			if err == nil {
				_ = conn.Close()
			}
			n.results <- err
		}
	}()
	tid := <-thread
	defer close(arranged)
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "near"}, PeerName: "far"}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	far, err := netlink.LinkByName("far")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetNsPid(far, tid); err != nil {
		t.Fatal(err)
	}
	command(t, "ip", "link", "set", "lo", "up")
	command(t, "ip", "address", "add", "10.0.0.1/24", "dev", "near")
	command(t, "ip", "link", "set", "near", "up")
	sysctl(t, "near/route_localnet")
	in := []string{fmt.Sprintf("--net=/proc/%d/task/%d/ns/net", os.Getpid(), tid)}
	command(t, "nsenter", append(in, "sh", "-ec", "ip address add 10.0.0.2/24 dev far; ip link set far up; "+
		"echo 1 >/proc/sys/net/ipv4/conf/far/route_localnet; ip route add 127.0.0.1 via 10.0.0.1 src 10.0.0.2")...)
	return n
}
