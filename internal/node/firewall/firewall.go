package firewall

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/berth-run/berth/internal/base/packetfilter"
)

// comment marks the rule. It changes when the rule of a later version differs, so that the agent replaces the old one.
const comment = "Berth: no packets to loopback addresses from a network, version 1"

// Options configures a Firewall.
type Options struct {
	// Name is the name of the table, a letter followed by letters, digits and underscores. Agents of different root
	// directories have different names.
	Name string
	// Off removes the rule instead of writing it (makeIPTablesUtilChains: false).
	Off bool
	// Log is never nil.
	Log *slog.Logger
}

// Firewall is the rule of one agent. It is not safe for concurrent use.
type Firewall struct{ o Options }

// New returns a firewall. Ensure and Run write the rule.
func New(o Options) *Firewall { return &Firewall{o} }

// filter is a packet filter of the kernel that can hold the rule.
type filter interface {
	// present reports whether the rule is there.
	present(ctx context.Context) (bool, error)
	// write writes the rule. The filter has none, or the rule of an earlier version.
	write(ctx context.Context) error
	// remove removes the rule. Without a rule it does nothing.
	remove(ctx context.Context) error
}

// Ensure writes the rule if it is missing.
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

// Remove removes the rule.
func (f *Firewall) Remove(ctx context.Context) error {
	filter, err := f.filter(ctx)
	if errors.Is(err, errNoFilter) {
		return nil
	}
	if err == nil {
		err = filter.remove(ctx)
	}
	if err != nil {
		return fmt.Errorf("remove the packet filter rule for loopback addresses: %w", err)
	}
	return nil
}

var errNoFilter = errors.New(
	"the kernel has no nftables and iptables does not work: load nf_tables, or install the package iptables")

// filter chooses the packet filter.
func (f *Firewall) filter(ctx context.Context) (filter, error) {
	switch {
	case packetfilter.Nftables():
		return nftable{f.o.Name}, nil
	case packetfilter.IPTables(ctx, "filter"):
		return ipTables{f.o.Name}, nil
	}
	return nil, errNoFilter
}
