package rules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/packetfilter"
)

// tries is how often Remove reads the rules again because a plugin has deleted one of them meanwhile.
const tries = 5

// chains are the chains of nftables with rules for single pods.
func chains() []*nftables.Chain {
	var all []*nftables.Chain
	for _, t := range []struct {
		family nftables.TableFamily
		table  string
		chains []string
	}{
		{nftables.TableFamilyINet, "cni_plugins_masquerade", []string{"masq_checks"}},
		{nftables.TableFamilyIPv4, "cni_hostport", []string{"hostports", "hostip_hostports", "masquerading"}},
		{nftables.TableFamilyIPv6, "cni_hostport", []string{"hostports", "hostip_hostports", "masquerading"}},
	} {
		table := &nftables.Table{Name: t.table, Family: t.family}
		for _, name := range t.chains {
			all = append(all, &nftables.Chain{Name: name, Table: table})
		}
	}
	return all
}

// List returns the owners of all rules for pods, one for each rule.
func List(ctx context.Context) ([]Owner, error) {
	var all []Owner
	collect := func(o Owner) bool {
		all = append(all, o)
		return false
	}
	err := Remove(ctx, collect)
	return all, err
}

// Remove removes the rules that match. A packet filter that does not work here has no rules.
func Remove(ctx context.Context, match func(Owner) bool) error {
	err := removeNftables(match)
	for i := 1; i < tries && errors.Is(err, unix.ENOENT); i++ {
		err = removeNftables(match)
	}
	if err != nil {
		err = fmt.Errorf("remove rules of pods from nftables: %w", err)
	}
	for _, i := range families() {
		if !i.mayHaveRules() {
			continue
		}
		if failed := i.remove(ctx, match); failed != nil {
			err = errors.Join(err, fmt.Errorf("remove rules of pods from %s: %w", i.command, failed))
		}
	}
	return err
}

func removeNftables(match func(Owner) bool) error {
	if !packetfilter.Nftables() {
		return nil
	}
	c, err := nftables.New()
	if err != nil {
		return err
	}
	found := false
	for _, chain := range chains() {
		rules, err := c.GetRules(chain.Table, chain)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
		for _, r := range rules {
			comment, _ := userdata.GetString(r.UserData, userdata.TypeComment)
			if o, ok := owner(comment); !ok || !match(o) {
				continue
			}
			r.Table, r.Chain, found = chain.Table, chain, true
			if err := c.DelRule(r); err != nil {
				return err
			}
		}
	}
	if !found {
		return nil
	}
	return c.Flush()
}

// ipTables is the table nat of iptables for one address family.
type ipTables struct {
	command string // iptables or ip6tables
	family  nftables.TableFamily
	names   string // the file of the kernel that lists the tables of this family
}

func families() []ipTables {
	return []ipTables{
		{"iptables", nftables.TableFamilyIPv4, "/proc/thread-self/net/ip_tables_names"},
		{"ip6tables", nftables.TableFamilyIPv6, "/proc/thread-self/net/ip6_tables_names"},
	}
}

// mayHaveRules reports whether the table may have rules for pods. It asks the kernel, which takes far less time than
// iptables-save. iptables keeps its tables in one of two places: its own modules of the kernel, which list their tables
// in a file, or nftables. The plugins keep every rule for a pod in a chain CNI-..., or it jumps to such a chain.
func (i ipTables) mayHaveRules() bool {
	text, err := os.ReadFile(i.names)
	if err != nil && !errors.Is(err, fs.ErrNotExist) || slices.Contains(strings.Fields(string(text)), table) {
		return true
	}
	if !packetfilter.Nftables() {
		return false
	}
	c, err := nftables.New()
	if err != nil {
		return true
	}
	chains, err := c.ListChainsOfTableFamily(i.family)
	return err != nil || slices.ContainsFunc(chains, func(chain *nftables.Chain) bool {
		return chain.Table.Name == table && strings.HasPrefix(chain.Name, "CNI-")
	})
}

// table is the table of iptables where the plugins make rules.
const table = "nat"

// save returns the rules of the table. It is empty if the program is not installed or the kernel has no iptables.
func (i ipTables) save(ctx context.Context) string {
	saved, err := exec.CommandContext(ctx, i.command+"-save", "-t", table).Output()
	if err != nil {
		return ""
	}
	return string(saved)
}

func (i ipTables) remove(ctx context.Context, match func(Owner) bool) error {
	text := withoutOwned(i.save(ctx), match)
	if text == "" {
		return nil
	}
	restore := exec.CommandContext(ctx, i.command+"-restore", "-w", "--noflush")
	restore.Stdin = strings.NewReader(text)
	if out, err := restore.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
