package firewall

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/berth-run/berth/internal/base/packetfilter"
)

// Comments mark the rules. The comment changes when the rule of a later version differs, so that the agent replaces the
// old one.
const (
	networkComment = "Berth: no packets to loopback addresses from a network, version 1"
	privateComment = "Berth: only root may send to this address, version 1"
)

// Options configures a Firewall.
type Options struct {
	// Name is the name of the table, a letter followed by letters, digits and underscores. Agents of different root
	// directories have different names.
	Name string
	// Private is an address in 127.0.0.0/8 that only processes of root may send to. Invalid: there is none.
	Private netip.Addr
	// Off removes the rules instead of writing them (makeIPTablesUtilChains: false).
	Off bool
	// Log is never nil.
	Log *slog.Logger
}

// Firewall has the rules of one agent. It is not safe for concurrent use.
type Firewall struct{ o Options }

// New returns a firewall. Ensure and Run write the rules.
func New(o Options) *Firewall { return &Firewall{o} }

// filter is a packet filter of the kernel that can hold the rules.
type filter interface {
	// present reports whether all rules are there.
	present(ctx context.Context) (bool, error)
	// write writes the rules. The filter has none, some of them, or rules of an earlier version.
	write(ctx context.Context) error
	// remove removes the rules. Without any it does nothing.
	remove(ctx context.Context) error
}

// Ensure writes the rules that are missing.
func (f *Firewall) Ensure(ctx context.Context) error {
	_, err := f.ensure(ctx)
	return err
}

func (f *Firewall) ensure(ctx context.Context) (written bool, err error) {
	if f.o.Off {
		return false, f.Remove(ctx)
	}
	filter, err := f.filter(ctx)
	if err != nil {
		return false, fmt.Errorf("protect the loopback addresses: %w", err)
	}
	there, err := filter.present(ctx)
	if err == nil && there {
		return false, nil
	}
	if err == nil {
		err = filter.write(ctx)
	}
	if err != nil {
		return false, fmt.Errorf("protect the loopback addresses: %w", err)
	}
	return true, nil
}

// Remove removes the rules.
func (f *Firewall) Remove(ctx context.Context) error {
	filter, err := f.filter(ctx)
	if errors.Is(err, errNoFilter) {
		return nil
	}
	if err == nil {
		err = filter.remove(ctx)
	}
	if err != nil {
		return fmt.Errorf("remove the packet filter rules for loopback addresses: %w", err)
	}
	return nil
}

var errNoFilter = errors.New(
	"the kernel has no nftables and iptables does not work: load nf_tables, or install the package iptables")

// filter chooses the packet filter.
func (f *Firewall) filter(ctx context.Context) (filter, error) {
	switch {
	case packetfilter.Nftables():
		return nftable{f.o.Name, f.o.Private}, nil
	case packetfilter.IPTables(ctx, "filter"):
		return ipTables{f.o.Name, f.o.Private}, nil
	}
	return nil, errNoFilter
}
