package rules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
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
	for _, command := range []string{"iptables", "ip6tables"} {
		if failed := removeIPTables(ctx, command, match); failed != nil {
			err = errors.Join(err, fmt.Errorf("remove rules of pods from %s: %w", command, failed))
		}
	}
	return err
}

// hasNftables reports whether the kernel has nftables.
func hasNftables(c *nftables.Conn) bool {
	_, err := c.ListTables()
	return err == nil
}

func removeNftables(match func(Owner) bool) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	if !hasNftables(c) {
		return nil
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

// save returns the rules of iptables. It is empty if the program is not installed or the kernel has no iptables.
func save(ctx context.Context, command string) string {
	saved, err := exec.CommandContext(ctx, command+"-save", "-t", "nat").Output()
	if err != nil {
		return ""
	}
	return string(saved)
}

func removeIPTables(ctx context.Context, command string, match func(Owner) bool) error {
	text := withoutOwned(save(ctx, command), match)
	if text == "" {
		return nil
	}
	restore := exec.CommandContext(ctx, command+"-restore", "-w", "--noflush")
	restore.Stdin = strings.NewReader(text)
	if out, err := restore.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
