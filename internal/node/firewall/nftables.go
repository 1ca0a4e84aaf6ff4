package firewall

import (
	"context"
	"errors"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
)

const (
	chainName = "input"
	// destinationNAT is the bit of a connection whose destination a rule has changed (IPS_DST_NAT).
	destinationNAT = 1 << 5
	// destination is the offset of the destination address in the IPv4 header.
	destination = 16
)

// nftable is the name of the nftables table with the rule.
type nftable struct{ name string }

func (n nftable) table() *nftables.Table {
	return &nftables.Table{Name: n.name, Family: nftables.TableFamilyIPv4}
}

func (n nftable) chain() *nftables.Chain {
	accept := nftables.ChainPolicyAccept
	return &nftables.Chain{
		Name: chainName, Table: n.table(), Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput,
		Priority: nftables.ChainPriorityFilter, Policy: &accept,
	}
}

// rule drops packets to 127.0.0.0/8 that did not come in over lo and belong to no connection that is spared.
func (n nftable) rule() *nftables.Rule {
	lo := make([]byte, unix.IFNAMSIZ)
	copy(lo, "lo")
	exprs := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: lo},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: destination, Len: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{127}},
	}
	exprs = append(exprs, without(expr.CtKeySTATUS, destinationNAT)...)
	exprs = append(exprs, without(expr.CtKeySTATE, expr.CtStateBitESTABLISHED|expr.CtStateBitRELATED)...)
	exprs = append(exprs, &expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop})
	return &nftables.Rule{
		Table: n.table(), Chain: n.chain(), Exprs: exprs,
		UserData: userdata.AppendString(nil, userdata.TypeComment, comment),
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
	rules, err := c.GetRules(n.table(), n.chain())
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return false, err
	}
	for _, r := range rules {
		if text, ok := userdata.GetString(r.UserData, userdata.TypeComment); ok && text == comment {
			return true, nil
		}
	}
	return false, nil
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
	c.AddChain(n.chain())
	c.AddRule(n.rule())
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
