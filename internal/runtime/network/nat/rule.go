package nat

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// family is an address family, with the places of addresses in its header.
type family struct {
	suffix      string // of the names of its sets
	number      byte   // NFPROTO_IPV4 or NFPROTO_IPV6
	size        uint32 // of an address, in bytes
	source      uint32 // offset of the source address
	destination uint32 // offset of the destination address
	kind        nftables.SetDatatype
	// multicast are the bits of the first byte of each multicast address, and mask says which bits count.
	mask, multicast byte
}

var (
	ipv4 = family{"4", unix.NFPROTO_IPV4, 4, 12, 16, nftables.TypeIPAddr, 0xf0, 0xe0}
	ipv6 = family{"6", unix.NFPROTO_IPV6, 16, 8, 24, nftables.TypeIP6Addr, 0xff, 0xff}
)

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}

// set returns the name of one of the family's sets.
func (f family) set(name string) string { return name + f.suffix }

// sets returns the family's sets and maps, without elements.
func (f family) sets(t *nftables.Table) []*nftables.Set {
	protocol, port := nftables.TypeInetProto, nftables.TypeInetService
	to := nftables.MustConcatSetType(f.kind, port)
	return []*nftables.Set{
		{Table: t, Name: f.set("pods"), KeyType: f.kind},
		{Table: t, Name: f.set("ports"), IsMap: true, DataType: to,
			KeyType: nftables.MustConcatSetType(protocol, port)},
		{Table: t, Name: f.set("addressed"), IsMap: true, DataType: to,
			KeyType: nftables.MustConcatSetType(f.kind, protocol, port)},
		{Table: t, Name: f.set("forwarded"), KeyType: nftables.MustConcatSetType(protocol, port, f.kind, port)},
	}
}

const (
	// first is the register where keys begin (NFT_REG32_00).
	first = 8
	// portOffset is the offset of the destination port in the headers of TCP, UDP and SCTP.
	portOffset = 2
	portSize   = 2
	// destinationNAT is the bit of a connection whose destination a rule has changed (IPS_DST_NAT).
	destinationNAT = 1 << 5
	// loopback is the first byte of the machine's IPv4 loopback addresses.
	loopback = 127
)

func equal(data ...byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: first, Data: data} }

// is matches packets of the family.
func (f family) is() []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: first}, equal(f.number)}
}

func header(offset, size, register uint32) expr.Any {
	return &expr.Payload{Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size, DestRegister: register}
}

func protocolTo(register uint32) expr.Any {
	return &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register}
}

func portTo(register uint32) expr.Any {
	return &expr.Payload{Base: expr.PayloadBaseTransportHeader, Offset: portOffset, Len: portSize,
		DestRegister: register}
}

// local matches packets to an address of the machine.
func local() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: first, FlagDADDR: true, ResultADDRTYPE: true},
		equal(binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)...),
	}
}

// fromPod matches packets that a pod has sent.
func (f family) fromPod() []expr.Any {
	return []expr.Any{header(f.source, f.size, first), &expr.Lookup{SourceRegister: first, SetName: f.set("pods")}}
}

// over matches packets that leave over a device, or over another one.
func over(device string, op expr.CmpOp) []expr.Any {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, device)
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: first},
		&expr.Cmp{Op: op, Register: first, Data: name},
	}
}

// redirected matches packets of connections whose destination a rule has changed.
func redirected() []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATUS, Register: first},
		&expr.Bitwise{SourceRegister: first, DestRegister: first, Len: width,
			Mask: binaryutil.NativeEndian.PutUint32(destinationNAT), Xor: make([]byte, width)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: first, Data: make([]byte, width)},
	}
}

// toHostPort returns the expressions that send a packet to a host port on to the pod. They look up the host's address
// only for ports with a hostIP.
func (f family) toHostPort(addressed bool) []expr.Any {
	at, set, all := uint32(first), f.set("ports"), f.is()
	if addressed {
		set, all = f.set("addressed"), append(all, header(f.destination, f.size, at))
		at += f.size / width
	}
	return append(all, protocolTo(at), portTo(at+1),
		&expr.Lookup{SourceRegister: first, DestRegister: first, IsDestRegSet: true, SetName: set},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.number), RegAddrMin: first,
			RegProtoMin: first + f.size/width})
}

// ofHostPort matches packets of connections to host ports, after the change of their destination. The port that the
// sender has chosen tells them from connections to a Service of the same pod.
func (f family) ofHostPort() []expr.Any {
	address := uint32(first + 2)
	return []expr.Any{
		protocolTo(first), &expr.Ct{Key: expr.CtKeyPROTODST, Register: first + 1}, // direction 0: the sender's
		header(f.destination, f.size, address), portTo(address + f.size/width),
		&expr.Lookup{SourceRegister: first, SetName: f.set("forwarded")},
	}
}

// unicast matches packets to one receiver.
func (f family) unicast() []expr.Any {
	mask, multicast := make([]byte, f.size), make([]byte, f.size)
	mask[0], multicast[0] = f.mask, f.multicast
	return []expr.Any{
		header(f.destination, f.size, first),
		&expr.Bitwise{SourceRegister: first, DestRegister: first, Len: f.size, Mask: mask, Xor: make([]byte, f.size)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: first, Data: multicast},
	}
}
