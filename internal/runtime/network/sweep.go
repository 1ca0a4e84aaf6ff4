package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/packetfilter"
	"github.com/berth-run/berth/internal/runtime/network/rules"
)

// Sandboxes are the sandboxes of the runtime.
type Sandboxes interface {
	// Sandboxes returns the IDs of all sandboxes, running or not.
	Sandboxes(ctx context.Context) ([]string, error)
	// Namespace returns the path of a sandbox's network namespace. It is empty for a pod in the host's network.
	Namespace(ctx context.Context, sandbox string) (string, error)
}

// Sweep removes the remains of ended sandboxes of this runtime: attachments to networks, packet filter rules, leases of
// addresses and network namespaces. An agent that was killed leaves such things, and so do CNI plugins whose pod has
// lost its namespace. Call it while no sandbox starts. After an error it continues with the rest, and returns all
// errors.
func (n *Network) Sweep(ctx context.Context, boxes Sandboxes) error {
	live, err := boxes.Sandboxes(ctx)
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	return n.sweep(ctx, live, boxes)
}

func (n *Network) sweep(ctx context.Context, live []string, boxes Sandboxes) error {
	isLive := func(id string) bool { return slices.Contains(live, id) }
	ours, err := attachments(n.config)
	var ended, used, errs = []string{}, []string{}, []error{err}
	for _, a := range ours {
		if isLive(a.ContainerID) {
			used = append(used, a.NetNS)
			continue
		}
		ended = append(ended, a.ContainerID)
		if err := detach(ctx, libraryOf(n.config), a); err != nil {
			errs = append(errs,
				fmt.Errorf("detach ended sandbox %s from network %s: %w", a.ContainerID, a.Network, err))
		}
	}
	var leased []string
	for _, id := range n.pods.IDs() {
		if isLive(id) {
			continue
		}
		ended, leased = append(ended, id), append(leased, id)
		if _, err := n.Detach(id); err != nil {
			errs = append(errs, fmt.Errorf("detach ended sandbox %s: %w", id, err))
		}
	}
	for _, id := range leased {
		if err := n.pods.Await(id); err != nil {
			errs = append(errs, fmt.Errorf("detach ended sandbox %s: %w", id, err))
		}
	}
	leased, err = releaseLeases(n.config.LeaseDir, isLive)
	ended, errs = append(ended, leased...), append(errs, err)
	err = rules.Remove(ctx, func(o rules.Owner) bool {
		if slices.ContainsFunc(live, o.Of) {
			return false
		}
		if o.Network == n.config.Bridge && !slices.ContainsFunc(ended, o.Of) {
			ended = append(ended, o.Sandbox)
		}
		return slices.ContainsFunc(ended, o.Of)
	})
	errs = append(errs, err, removeNamespaces(ctx, n.config.StateDir, live, used, boxes), n.arrangeLocalnet())
	if slices.Sort(ended); len(ended) > 0 {
		n.config.Log.Info("network of ended sandboxes removed", "sandboxes", slices.Compact(ended))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove network of ended sandboxes: %w", err)
	}
	return nil
}

func libraryOf(c Config) *libcni.CNIConfig { return libcni.NewCNIConfig(c.BinDirs, nil) }

// attachments returns the attachments of this runtime's pods, to whichever network. libcni has one directory for all
// runtimes of the machine. The path of the network namespace says which runtime has made an attachment.
func attachments(c Config) (ours []*libcni.NetworkAttachment, err error) {
	all, err := libraryOf(c).GetCachedAttachments("")
	if err != nil {
		return nil, fmt.Errorf("read attachments of pods: %w", err)
	}
	for _, a := range all {
		if strings.HasPrefix(a.NetNS, filepath.Clean(c.StateDir)+"/") {
			ours = append(ours, a)
		}
	}
	return ours, nil
}

// releaseLeases removes the leases of sandboxes that are not live, and returns these sandboxes. The plugin host-local
// keeps one file per address, whose first line is the sandbox's ID.
func releaseLeases(dir string, isLive func(id string) bool) (ended []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, path := range files {
		if _, err := netip.ParseAddr(filepath.Base(path)); err != nil {
			continue // a file of the plugin
		}
		text, err := os.ReadFile(path)
		id, _, _ := strings.Cut(string(text), "\n")
		if id = strings.TrimSpace(id); err == nil && isLive(id) {
			continue
		}
		if err == nil {
			ended, err = append(ended, id), os.Remove(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("release pod address: %w", err))
		}
	}
	return ended, errors.Join(errs...)
}

// removeNamespaces removes the network namespaces that no live sandbox has. used has the namespaces of the attached
// sandboxes.
func removeNamespaces(ctx context.Context, dir string, live, used []string, boxes Sandboxes) error {
	// The runtime's plugins have a directory each, and one of them mounts the namespaces.
	left, err := filepath.Glob(filepath.Join(dir, "*", "netns", "*"))
	left = slices.DeleteFunc(left, func(path string) bool { return slices.Contains(used, path) })
	if err != nil || len(left) == 0 {
		return err
	}
	for _, id := range live {
		path, err := boxes.Namespace(ctx, id)
		if err != nil {
			return fmt.Errorf("find network namespace of sandbox %s: %w", id, err)
		}
		used = append(used, path)
	}
	var errs []error
	for _, path := range left {
		if slices.Contains(used, path) {
			continue
		}
		err := unix.Unmount(path, unix.MNT_DETACH)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("unmount network namespace %s: %w", path, err))
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove network namespace: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Remove removes the built-in network from the machine, and what all sandboxes have left on any network. Call it only
// when no pod is left. The next start makes the network again.
func (n *Network) Remove(ctx context.Context) error {
	return errors.Join(n.pods.Restore(packetfilter.Nftables()), n.sweep(ctx, nil, nil), removeBridge(n.config.Bridge),
		n.pods.DeleteTable())
}
