package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/base/lock"
	"github.com/berth-run/berth/internal/base/netdump"
	"github.com/berth-run/berth/internal/base/routewatch"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/runtime/network/ranges"
)

// Overlaps has a row for each range of pods that overlaps with another network of the machine. The value describes that
// network.
type Overlaps = store.Table[netip.Prefix, string]

// Overlaps returns the current overlaps of the built-in network. Watch keeps them up to date.
func (n *Network) Overlaps() *Overlaps { return n.overlaps }

const (
	// choiceLock is held while an agent chooses ranges and makes its bridge, so that agents that start together choose
	// different ranges. Only root can open it.
	choiceLock = "/run/berth-network.lock"
	// choiceWait is how long an agent waits for others that choose, which takes them milliseconds.
	choiceWait = 10 * time.Second
)

// lockChoice waits for the other agents of this machine that are choosing ranges. It gives up after choiceWait, since a
// stopped process may hold the lock. The error is ctx's if ctx ends before, and nil otherwise.
func lockChoice(ctx context.Context, log *slog.Logger) (unlock func(), err error) {
	f, err := lock.TryFor(ctx, choiceLock, choiceWait)
	switch {
	case err == nil:
		return func() { _ = f.Close() }, nil
	case ctx.Err() != nil:
		return nil, err
	}
	log.Warn("choosing pod address ranges without a lock, another agent may choose the same", "err", err)
	return func() {}, nil
}

// chooseRanges chooses the ranges of pods if neither the configuration nor a cluster has. A range stays the same over
// restarts, unless it overlaps with another network while no pod has an address of it.
func (n *Network) chooseRanges() error {
	if len(n.config.PodCIDRs) > 0 {
		return nil
	}
	taken, err := ranges.Read(n.config.Bridge)
	if err != nil {
		return fmt.Errorf("choose pod address ranges: %w", err)
	}
	used, err := readLeases(leases(n.config))
	if err != nil {
		return err
	}
	used = append(used, n.pods.Addresses()...)
	before, err := readRanges(n.config.ChoiceFile)
	if err != nil {
		n.config.Log.Warn("cannot read the previous pod address ranges, choosing again", "err", err)
	}
	chosen := keep(before, ranges.Choose(taken), taken, used)
	n.config.PodCIDRs = chosen
	if slices.Equal(before, chosen) {
		return nil
	}
	n.config.Log.Info("address ranges of the built-in network chosen", "podCIDRs", chosen, "before", before)
	if err := checkpoint.Replace(n.config.ChoiceFile, []byte(rangesText(chosen)+"\n")); err != nil {
		return fmt.Errorf("store pod address ranges: %w", err)
	}
	return nil
}

// readRanges reads ranges that rangesText has written. A missing file has none.
func readRanges(path string) ([]netip.Prefix, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	cidrs, err := parseRanges(string(text))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return cidrs, nil
}

// Watch keeps Overlaps up to date until ctx ends, and logs each overlap once.
func (n *Network) Watch(ctx context.Context) error {
	err := routewatch.Run(ctx, n.findOverlaps, n.config.Log)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (n *Network) findOverlaps() {
	n.mu.Lock()
	defer n.mu.Unlock()
	taken, err := ranges.Read(n.config.Bridge)
	if err != nil {
		n.config.Log.Warn("cannot look for networks that overlap with the pods', trying after the next change",
			"err", err)
		return
	}
	found := map[netip.Prefix]string{}
	if n.source == builtIn {
		for _, pods := range podCIDRs(n.config.PodCIDRs, n.machine.IPv6) {
			if t, ok := ranges.Overlap(pods, taken); ok {
				found[pods] = fmt.Sprintf("%s (%s)", t.Range, t.By)
			}
		}
	}
	for pods, other := range found {
		if was, ok := n.overlaps.Get(pods); !ok || was != other {
			n.overlaps.Put(pods, other)
			n.config.Log.Warn("pod addresses overlap with another network of this machine: one of them is unreachable",
				"pods", pods, "network", other,
				"next", "set podCIDR to free ranges and restart, or change that network")
		}
	}
	for pods, other := range n.overlaps.Snapshot().All() {
		if _, ok := found[pods]; !ok {
			n.overlaps.Delete(pods)
			n.config.Log.Info("pod addresses no longer overlap with another network", "pods", pods, "network", other)
		}
	}
}

const aliasPrefix = "pods of "

// alias is the description of this network's bridge. Agents of other root directories read it. The kernel allows 255
// bytes.
func (c Config) alias() string {
	const most = 255
	text := aliasPrefix + c.Owner
	return text[:min(len(text), most)]
}

var bridgeName = regexp.MustCompile(`^berth(0|-[0-9a-f]{8})$`)

// reportOthers logs the bridges of the agents of other root directories, running or not.
func reportOthers(c Config) {
	links, err := netdump.Complete(netlink.LinkList)
	if err != nil {
		c.Log.Warn("cannot look for the pod networks of other agents", "err", err)
		return
	}
	for _, link := range links {
		a := link.Attrs()
		if link.Type() != "bridge" || a.Name == c.Bridge ||
			!bridgeName.MatchString(a.Name) && !strings.HasPrefix(a.Alias, aliasPrefix) {
			continue
		}
		var own []string
		addresses, _ := netlink.AddrList(link, netlink.FAMILY_ALL) // the log then has none
		for _, at := range addresses {
			if p, err := netip.ParsePrefix(at.IPNet.String()); err == nil && !p.Addr().IsLinkLocalUnicast() {
				own = append(own, p.Masked().String())
			}
		}
		c.Log.Info("another root directory has a pod network on this machine", "bridge", a.Name,
			"root", strings.TrimPrefix(a.Alias, aliasPrefix), "podCIDRs", own)
	}
}
