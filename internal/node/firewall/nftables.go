package firewall

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
)

const (
	// destinationNAT is the bit of a connection whose destination a rule has changed (IPS_DST_NAT).
	destinationNAT = 1 << 5
	// destination is the offset of the destination address in the IPv4 header.
	destination = 16
)

// nftable is an nftables table with the rules.
type nftable struct {
	name    string
	private netip.Addr
}

func (n nftable) table() *nftables.Table {
	return &nftables.Table{Name: n.name, Family: nftables.TableFamilyIPv4}
}

// rules returns the rules, each with the chain that it is alone in.
func (n nftable) rules() []*nftables.Rule {
	rules := []*nftables.Rule{n.rule("input", nftables.ChainHookInput, networkComment, fromNetwork())}
	if n.private.IsValid() {
		rules = append(rules, n.rule("output", nftables.ChainHookOutput, privateComment, n.fromOthers()))
	}
	return rules
}

// rule drops and counts the packets that match at a hook.
func (n nftable) rule(chain string, hook *nftables.ChainHook, comment string, match []expr.Any) *nftables.Rule {
	accept := nftables.ChainPolicyAccept
	return &nftables.Rule{
		Table: n.table(),
		Chain: &nftables.Chain{
			Name: chain, Table: n.table(), Type: nftables.ChainTypeFilter, Hooknum: hook,
			Priority: nftables.ChainPriorityFilter, Policy: &accept,
		},
		Exprs:    append(match, &expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}),
		UserData: userdata.AppendString(nil, userdata.TypeComment, comment),
	}
}

// fromNetwork matches packets to 127.0.0.0/8 that did not come in over lo and belong to no connection that is spared.
func fromNetwork() []expr.Any {
	lo := make([]byte, unix.IFNAMSIZ)
	copy(lo, "lo")
	return slices.Concat([]expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: lo},
	}, to(127), without(expr.CtKeySTATUS, destinationNAT),
		without(expr.CtKeySTATE, expr.CtStateBitESTABLISHED|expr.CtStateBitRELATED))
}

// fromOthers matches packets to the private address from sockets that root did not open.
func (n nftable) fromOthers() []expr.Any {
	return append(to(n.private.AsSlice()...),
		&expr.Meta{Key: expr.MetaKeySKUID, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(0)})
}

// to matches packets to the addresses that begin with these bytes.
func to(address ...byte) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: destination,
			Len: uint32(len(address))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: address},
	}
}

// without matches packets whose connection has none of the bits.
func without(key expr.CtKey, bits uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: key, Register: 1},
		&expr.Bitwise{
			SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(bits),
			Xor: binaryutil.NativeEndian.PutUint32(0),
		},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(0)},
	}
}

func (n nftable) present(context.Context) (bool, error) {
	c, err := nftables.New()
	if err != nil {
		return false, err
	}
	for _, want := range n.rules() {
		there, err := c.GetRules(n.table(), want.Chain)
		if errors.Is(err, unix.ENOENT) {
			return false, nil
		}
		same := func(r *nftables.Rule) bool { return bytes.Equal(r.UserData, want.UserData) }
		if err != nil || !slices.ContainsFunc(there, same) {
			return false, err
		}
	}
	return true, nil
}

// write replaces the whole table in one transaction.
func (n nftable) write(context.Context) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	c.AddTable(n.table())
	c.DelTable(n.table())
	c.AddTable(n.table())
	for _, r := range n.rules() {
		c.AddChain(r.Chain)
		c.AddRule(r)
	}
	return c.Flush()
}

func (n nftable) remove(context.Context) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	c.AddTable(n.table()) // so that there is one to delete
	c.DelTable(n.table())
	return c.Flush()
}
