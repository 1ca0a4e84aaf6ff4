package network

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/netns"
	cnins "github.com/containernetworking/plugins/pkg/ns"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/roottest"
	"github.com/berth-run/berth/internal/runtime/network/lease"
)

// namespace is a network namespace of a pod or of another machine, with the sandbox's ID.
type namespace struct {
	*netns.NetNS
	id string
}

// space makes a network namespace whose loopback device is up.
func space(t *testing.T, letter string) namespace {
	t.Helper()
	made, err := netns.NewNetNS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := made.Remove(); err != nil {
			t.Error(err)
		}
	})
	n := namespace{made, strings.Repeat(letter, 64)}
	n.run(t, "ip link set lo up")
	return n
}

// do calls f in the namespace.
func (n namespace) do(t *testing.T, f func() error) {
	t.Helper()
	if err := n.Do(func(cnins.NetNS) error { return f() }); err != nil {
		t.Fatal(err)
	}
}

func (n namespace) run(t *testing.T, script string) (out string) {
	t.Helper()
	n.do(t, func() error {
		text, err := exec.CommandContext(t.Context(), "sh", "-ec", script).CombinedOutput()
		if out = string(text); err != nil {
			return fmt.Errorf("%s: %w: %s", script, err, text)
		}
		return nil
	})
	return out
}

// answer makes the namespace answer on a TCP and a UDP port with its name and the sender's address.
func (n namespace) answer(t *testing.T, name string, port int) {
	t.Helper()
	at := fmt.Sprintf(":%d", port)
	var stream net.Listener
	var packets net.PacketConn
	n.do(t, func() (err error) {
		if stream, err = new(net.ListenConfig).Listen(t.Context(), "tcp", at); err == nil {
			packets, err = new(net.ListenConfig).ListenPacket(t.Context(), "udp", at)
		}
		return err
	})
	t.Cleanup(func() { _ = errors.Join(stream.Close(), packets.Close()) })
	go func() {
		for {
			conn, err := stream.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprintf(conn, "%s %s\n", name, host(conn.RemoteAddr()))
			_ = conn.Close()
		}
	}()
	go func() {
		for {
			_, from, err := packets.ReadFrom(make([]byte, 100))
			if err != nil {
				return
			}
			_, _ = packets.WriteTo(fmt.Appendf(nil, "%s %s\n", name, host(from)), from)
		}
	}()
}

func host(a net.Addr) string {
	at, _ := netip.ParseAddrPort(a.String())
	return at.Addr().Unmap().String()
}

// ask returns the answer from an address over a protocol.
func ask(ctx context.Context, network, address string) string {
	const wait = 2 * time.Second
	conn, err := (&net.Dialer{Timeout: wait}).DialContext(ctx, network, address)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
		return err.Error()
	}
	if network == "udp" {
		_, _ = conn.Write([]byte("?"))
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(line)
}

// ask is ask in a namespace.
func (n namespace) ask(t *testing.T, network, address string) (answer string) {
	t.Helper()
	n.do(t, func() error {
		answer = ask(t.Context(), network, address)
		return nil
	})
	return answer
}

// node is a network with an outside: another namespace that only knows the machine's own addresses.
func node(t *testing.T) (*Network, namespace) {
	t.Helper()
	n := inRoot(t.TempDir(), "berth0", slog.New(slog.NewTextHandler(t.Output(), nil)))
	prepare(t, n)
	outside := space(t, "f")
	ip(t, "link", "set", "lo", "up")
	ip(t, "link", "add", "wan", "type", "veth", "peer", "name", "wan", "netns", outside.GetPath())
	for _, args := range []string{
		"link set wan up", "addr add 192.0.2.1/24 dev wan", "addr add 192.0.2.3/24 dev wan",
		"addr add fd99::1/64 dev wan nodad",
	} {
		ip(t, strings.Fields(args)...)
	}
	outside.run(t, "ip link set wan up; ip addr add 192.0.2.2/24 dev wan; ip addr add fd99::2/64 dev wan nodad")
	return n, outside
}

func (n *Network) start(t *testing.T, pod namespace, config *runtimeapi.PodSandboxConfig) []netip.Prefix {
	t.Helper()
	addresses, _, err := n.Attach(t.Context(), pod.id, pod.GetPath(), config)
	if err != nil {
		t.Fatal(err)
	}
	return addresses
}

func (n *Network) stop(t *testing.T, id string) {
	t.Helper()
	_, err := n.Detach(id)
	if err := errors.Join(err, n.pods.Await(id)); err != nil {
		t.Fatal(err)
	}
}

func mapping(protocol runtimeapi.Protocol, ip string, from, to int32) *runtimeapi.PortMapping {
	return &runtimeapi.PortMapping{Protocol: protocol, HostIp: ip, HostPort: from, ContainerPort: to}
}

func output(t *testing.T, script string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-ec", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
	return string(out)
}

// Every way to a pod and out of it works, for both families: from the machine, from outside, from another pod, from the
// pod itself, and over the machine's loopback address. What a pod sends outside has the machine's address.
func TestPodsOfTheBuiltInNetwork(t *testing.T) {
	if !roottest.OwnNetwork(t) {
		return
	}
	n, outside := node(t)
	a, b := space(t, "a"), space(t, "b")
	one := n.start(t, a, &runtimeapi.PodSandboxConfig{PortMappings: []*runtimeapi.PortMapping{
		mapping(runtimeapi.Protocol_TCP, "", 8080, 80), mapping(runtimeapi.Protocol_UDP, "", 8080, 80),
		mapping(runtimeapi.Protocol_TCP, "192.0.2.3", 8081, 80), mapping(runtimeapi.Protocol_TCP, "0.0.0.0", 8082, 80),
		mapping(runtimeapi.Protocol_TCP, "fd99::1", 8083, 80), mapping(runtimeapi.Protocol_SCTP, "", 8084, 80),
	}})
	two := n.start(t, b, &runtimeapi.PodSandboxConfig{})
	a.answer(t, "a", 80)
	b.answer(t, "b", 80)
	outside.answer(t, "outside", 80)
	machine := namespace{id: "machine"}
	const gateway, gateway6 = "10.201.0.1", "fd62:6572:7468::1"
	addr := func(of []netip.Prefix, i int) string { return of[i].Addr().String() }
	at := net.JoinHostPort
	for _, call := range []struct {
		from             namespace
		network, address string
		want             string // empty: no answer
	}{
		{machine, "tcp", at(addr(one, 0), "80"), "a " + gateway},
		{machine, "tcp", at(addr(one, 1), "80"), "a " + gateway6},
		{b, "tcp", at(addr(one, 0), "80"), "a " + addr(two, 0)},
		{b, "tcp", at(addr(one, 1), "80"), "a " + addr(two, 1)},
		{a, "tcp", "192.0.2.2:80", "outside 192.0.2.1"},
		{a, "udp", "192.0.2.2:80", "outside 192.0.2.1"},
		{a, "tcp", "[fd99::2]:80", "outside fd99::1"},
		{outside, "tcp", "192.0.2.1:8080", "a 192.0.2.2"},
		{outside, "udp", "192.0.2.1:8080", "a 192.0.2.2"},
		{outside, "tcp", "[fd99::1]:8080", "a fd99::2"},
		{outside, "udp", "[fd99::1]:8080", "a fd99::2"},
		{machine, "tcp", "127.0.0.1:8080", "a " + gateway},
		{machine, "udp", "127.0.0.1:8080", "a " + gateway},
		{machine, "tcp", "192.0.2.1:8080", "a 192.0.2.1"},
		{machine, "tcp", "[fd99::1]:8080", "a fd99::1"},
		{machine, "tcp", "[::1]:8080", ""},
		{a, "tcp", "192.0.2.1:8080", "a " + gateway},
		{a, "udp", "192.0.2.1:8080", "a " + gateway},
		{a, "tcp", "[fd99::1]:8080", "a " + gateway6},
		{b, "tcp", "192.0.2.1:8080", "a " + gateway},
		{b, "udp", "192.0.2.1:8080", "a " + gateway},
		{b, "tcp", "[fd99::1]:8080", "a " + gateway6},
		{b, "tcp", at(gateway, "8080"), "a " + gateway},
		{outside, "tcp", "192.0.2.3:8081", "a 192.0.2.2"},
		{outside, "tcp", "192.0.2.1:8081", ""},
		{outside, "tcp", "[fd99::1]:8081", ""},
		{outside, "tcp", "192.0.2.1:8082", "a 192.0.2.2"},
		{outside, "tcp", "[fd99::1]:8082", ""},
		{outside, "tcp", "[fd99::1]:8083", "a fd99::2"},
		{outside, "tcp", "192.0.2.1:8083", ""},
		{outside, "udp", "192.0.2.1:8081", ""},
	} {
		var got string
		if call.from.NetNS == nil {
			got = ask(t.Context(), call.network, call.address)
		} else {
			got = call.from.ask(t, call.network, call.address)
		}
		if call.want == "" && strings.HasPrefix(got, "a ") || call.want != "" && got != call.want {
			t.Errorf("%s to %s %s: %q, want %q", call.from.id[:1], call.network, call.address, got, call.want)
		}
	}
	if got := sctp(t, outside, a, 8084); got != 80 {
		t.Errorf("an SCTP packet to host port 8084 arrives at port %d of the pod, want 80", got)
	}
	if t.Failed() {
		t.Log(output(t, "nft list ruleset; ip -d link"))
	}
	n.stop(t, a.id)
	n.stop(t, b.id)
	left := output(t, "nft list ruleset; ip -o link; cat /proc/sys/net/ipv4/conf/berth0/route_localnet; ls "+
		n.config.Leases)
	if strings.Contains(left, a.id) || strings.Contains(left, "veth") || !strings.HasSuffix(left, "\n0\n") {
		t.Errorf("the pods have left something:\n%s", left)
	}
	if got := outside.ask(t, "tcp", "192.0.2.1:8080"); strings.HasPrefix(got, "a ") {
		t.Error("the host port of an ended pod still answers")
	}
}

// sctp sends the first packet of an SCTP association to a port of the machine, and returns the port of the pod that it
// reaches. The kernel needs no SCTP for that.
func sctp(t *testing.T, from, pod namespace, port uint16) uint16 {
	t.Helper()
	const proto = "ip4:132"
	packet := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, 4242), port)
	packet = append(packet, 0, 0, 0, 0, 0, 0, 0, 0)                             // no verification tag, checksum
	packet = append(packet, 1, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0x40, 0, 0, 1, 0, 1) // INIT
	packet = append(packet, 0, 0, 0, 1)
	sum := crc32.Checksum(packet, crc32.MakeTable(crc32.Castagnoli))
	binary.LittleEndian.PutUint32(packet[8:], sum)
	var socket net.PacketConn
	pod.do(t, func() (err error) {
		socket, err = new(net.ListenConfig).ListenPacket(t.Context(), proto, "0.0.0.0")
		return err
	})
	defer func() { _ = socket.Close() }()
	from.do(t, func() error {
		conn, err := new(net.Dialer).DialContext(t.Context(), proto, "192.0.2.1")
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Write(packet)
		return err
	})
	buffer := make([]byte, 100)
	if err := socket.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := socket.ReadFrom(buffer); err != nil {
		t.Fatal(err)
	}
	return binary.BigEndian.Uint16(buffer[2:])
}

// leasesIn reads the leases of a network from disk.
func leasesIn(t *testing.T, n *Network) *lease.Book {
	t.Helper()
	book := lease.New(n.config.Leases)
	if _, err := book.Load(); err != nil {
		t.Fatal(err)
	}
	return book
}

// An agent that is killed at any moment leaves a network that the next one can use. A pod that runs keeps its address
// and its host port, also if its lease is lost. A lease without a pod goes.
func TestNextAgentFindsThePods(t *testing.T) {
	if !roottest.OwnNetwork(t) {
		return
	}
	n, outside := node(t)
	a, b, c := space(t, "a"), space(t, "b"), space(t, "c")
	ports := &runtimeapi.PodSandboxConfig{PortMappings: []*runtimeapi.PortMapping{
		mapping(runtimeapi.Protocol_TCP, "", 8080, 80)}}
	kept := n.start(t, a, ports)
	a.answer(t, "a", 80)
	ending := n.start(t, b, &runtimeapi.PodSandboxConfig{})
	answers := func(what string) {
		t.Helper()
		if got := outside.ask(t, "tcp", "192.0.2.1:8080"); got != "a 192.0.2.2" {
			t.Errorf("%s: %q", what, got)
		}
	}
	answers("before")
	if _, err := leasesIn(t, n).Take(c.id, n.config.PodCIDRs, nil, lease.Lease{}); err != nil {
		t.Fatal(err)
	}

	next := New(n.config)
	next.config.PodCIDRs = nil
	same(t, "ranges of the next agent", prepare(t, next), n.config.PodCIDRs)
	answers("after a restart")
	if next.pods.Leased(c.id) {
		t.Error("the lease of a pod that never started is kept")
	}
	if got := next.start(t, c, &runtimeapi.PodSandboxConfig{}); got[0] == kept[0] || got[0] == ending[0] {
		t.Errorf("a new pod has the address %s of another one", got[0])
	}

	lost := filepath.Join(n.config.Leases, a.id+".json")
	if err := os.WriteFile(lost, []byte("\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	next = New(next.config)
	prepare(t, next)
	l, _ := leasesIn(t, next).Get(a.id)
	same(t, "addresses of the pod whose lease was lost", l.Addresses, kept)
	answers("after the loss of the lease")
	if err := next.sweep(t.Context(), []string{a.id}, boxes{a.id: a.GetPath()}); err != nil {
		t.Fatal(err)
	}
	answers("after the sweep")
	left := output(t, "nft list ruleset; ip -o link")
	if strings.Contains(left, b.id) || strings.Contains(left, c.id) || !strings.Contains(left, a.id) {
		t.Errorf("after the sweep, which knows one pod:\n%s", left)
	}

	output(t, "nft flush ruleset")
	next.start(t, b, &runtimeapi.PodSandboxConfig{}) // writes the table again
	answers("after another program has removed the rules")
	if err := next.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	left = output(t, "nft list ruleset; ip -o link; ls "+n.config.Leases)
	if strings.Contains(left, "berth0") || strings.Contains(left, "veth") || strings.Contains(left, "json\n") {
		t.Errorf("the removed network has left:\n%s", left)
	}
}

// A second pod with a host port that is in use fails with the reason, and changes nothing for the first one.
func TestHostPortInUse(t *testing.T) {
	if !roottest.OwnNetwork(t) {
		return
	}
	n, outside := node(t)
	a, b := space(t, "a"), space(t, "b")
	ports := &runtimeapi.PodSandboxConfig{PortMappings: []*runtimeapi.PortMapping{
		mapping(runtimeapi.Protocol_TCP, "", 8080, 80)}}
	n.start(t, a, ports)
	a.answer(t, "a", 80)
	_, _, err := n.Attach(t.Context(), b.id, b.GetPath(), ports)
	if err == nil || !strings.Contains(err.Error(), "host port 8080 leads to sandbox "+a.id) {
		t.Errorf("a second pod with the same host port: %v", err)
	}
	n.stop(t, b.id)
	if got := outside.ask(t, "tcp", "192.0.2.1:8080"); got != "a 192.0.2.2" {
		t.Errorf("the first pod's port: %q", got)
	}
	n.stop(t, a.id)
	n.start(t, b, ports)
}

// Limits of bandwidth hold in both directions: a transfer of more than the bucket takes as long as the rate says.
func TestBandwidth(t *testing.T) {
	if !roottest.OwnNetwork(t) {
		return
	}
	n, _ := node(t)
	a := space(t, "a")
	const rate, size, burst = 1 << 20, 1 << 20, 128 << 10 // bytes a second, bytes
	addresses := n.start(t, a, &runtimeapi.PodSandboxConfig{Annotations: map[string]string{
		"kubernetes.io/ingress-bandwidth": "8Mi", "kubernetes.io/egress-bandwidth": "8Mi",
	}})
	const least = time.Duration(size-burst-64<<10) * time.Second / rate // less what is in flight
	for _, direction := range []struct {
		name     string
		from, to func(t *testing.T, f func() error)
		at       string
	}{
		{"ingress", func(_ *testing.T, f func() error) { _ = f() }, a.do, addresses[0].Addr().String()},
		{"egress", a.do, func(_ *testing.T, f func() error) { _ = f() }, "10.201.0.1"},
	} {
		var receiver net.Listener
		direction.to(t, func() (err error) {
			receiver, err = new(net.ListenConfig).Listen(t.Context(), "tcp", ":0")
			return err
		})
		_, port, _ := net.SplitHostPort(receiver.Addr().String())
		received := make(chan time.Duration)
		go func() {
			conn, err := receiver.Accept()
			if err != nil {
				close(received)
				return
			}
			began := time.Now()
			_, _ = io.Copy(io.Discard, conn)
			received <- time.Since(began)
		}()
		direction.from(t, func() error {
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", net.JoinHostPort(direction.at, port))
			if err != nil {
				return err
			}
			_, err = conn.Write(make([]byte, size))
			return errors.Join(err, conn.Close())
		})
		took := <-received
		if took < least {
			t.Errorf("%s: %d bytes took %s, want at least %s", direction.name, size, took, least)
		}
		_ = receiver.Close()
	}
	t.Log(output(t, "tc qdisc; tc -s filter show dev vethaaaaaaaaaaa ingress"))
	n.stop(t, a.id)
	if left := output(t, "ip -o link"); strings.Contains(left, "ifbaaa") || strings.Contains(left, "veth") {
		t.Errorf("the pod has left:\n%s", left)
	}
}

// Many pods start and end at the same time, each with addresses of its own.
func TestManyPodsAtOnce(t *testing.T) {
	if !roottest.OwnNetwork(t) {
		return
	}
	n, _ := node(t)
	const pods = 30
	type result struct {
		addresses []netip.Prefix
		err       error
	}
	results := make(chan result)
	began := time.Now()
	for i := range pods {
		made, err := netns.NewNetNS(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = made.Remove() })
		go func() {
			id := fmt.Sprintf("%064d", i)
			id = fmt.Sprintf("%02d", i) + id[2:]
			addresses, _, err := n.Attach(t.Context(), id, made.GetPath(), &runtimeapi.PodSandboxConfig{})
			results <- result{addresses, err}
		}()
	}
	seen := map[netip.Addr]bool{}
	for range pods {
		r := <-results
		if r.err != nil {
			t.Error(r.err)
		}
		for _, a := range r.addresses {
			if seen[a.Addr()] {
				t.Errorf("two pods have the address %s", a)
			}
			seen[a.Addr()] = true
		}
	}
	t.Logf("%d pods in %s", pods, time.Since(began))
	if len(seen) != 2*pods {
		t.Errorf("%d addresses for %d pods, want two each", len(seen), pods)
	}
	if err := n.sweep(t.Context(), nil, boxes{}); err != nil {
		t.Fatal(err)
	}
	left := output(t, "ip -o link; nft list ruleset")
	if strings.Contains(left, "veth") || strings.Contains(left, "elements") {
		t.Errorf("left:\n%s", left)
	}
}
