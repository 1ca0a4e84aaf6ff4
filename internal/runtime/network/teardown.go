package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/libcni"

	"github.com/berth-run/berth/internal/runtime/network/rules"
)

// release detaches a sandbox from the networks that CNI plugins have attached it to, except for the current one.
// containerd calls only the plugins of the current network, and would leave addresses and rules of earlier ones behind.
// Among these is the built-in network of the versions before. A failure, such as a plugin that is no longer installed,
// is logged and does not keep the pod from stopping.
func (n *Network) release(ctx context.Context, sandbox string) {
	if n.pods.Leased(sandbox) {
		return
	}
	plugins := libraryOf(n.config)
	found, err := plugins.GetCachedAttachments(sandbox)
	if err != nil {
		n.config.Log.Warn("cannot read the networks of a pod, its addresses and rules on earlier networks stay",
			"sandbox", sandbox, "err", err)
		return
	}
	for _, a := range found {
		if a.Network == n.current() {
			continue
		}
		if err := detach(ctx, plugins, a); err != nil {
			n.config.Log.Warn("cannot detach a pod from an earlier network, its address and rules there stay",
				"sandbox",
				sandbox, "network", a.Network, "err", err)
		}
	}
}

// ended removes the remains of a sandbox that has ended: its lease if the CRI plugin has lost its network namespace,
// the rules of CNI plugins, and route_localnet once no pod has a host port. The bridge plugin leaves its rules behind
// if the sandbox's network namespace no longer exists. Each sandbox is stopped and then removed; the second call of
// ended has nothing to do if the first succeeded. For a pod of the built-in network, the first has nothing to do
// either.
func (n *Network) ended(ctx context.Context, sandbox string) {
	if _, done := n.cleaned.Load(sandbox); done {
		return
	}
	leased, err := n.Detach(sandbox)
	err = errors.Join(err, n.pods.Await(sandbox))
	if !leased {
		err = errors.Join(
			rules.Remove(ctx, func(o rules.Owner) bool { return o.Of(sandbox) }),
			n.arrangeLocalnet(),
		)
	}
	if err != nil {
		n.config.Log.Warn("cannot remove the network of a pod, retrying when it is removed and at the next start",
			"sandbox", sandbox, "err", err)
		return
	}
	n.cleaned.Store(sandbox, nil)
}

// detach removes an attachment, with the configuration that it was made with.
func detach(ctx context.Context, cni *libcni.CNIConfig, a *libcni.NetworkAttachment) error {
	list, err := libcni.NetworkConfFromBytes(a.Config)
	if err != nil {
		return fmt.Errorf("read configuration of the attachment: %w", err)
	}
	netns := a.NetNS
	if _, err := os.Stat(netns); err != nil { // for plugins an empty path means that the namespace no longer exists
		netns = ""
	}
	return cni.DelNetworkList(ctx, list, &libcni.RuntimeConf{
		ContainerID: a.ContainerID, NetNS: netns, IfName: a.IfName, Args: a.CniArgs, CapabilityArgs: a.CapabilityArgs,
	})
}

// current returns the name of the machine's network that containerd uses now, which is the network in the first file.
// It is empty when there is none.
func (n *Network) current() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.source != machine {
		return ""
	}
	entries, err := os.ReadDir(n.config.Dir)
	first := slices.IndexFunc(entries, func(e os.DirEntry) bool { return isConf(e.Name()) })
	if err != nil || first < 0 {
		return ""
	}
	text, err := os.ReadFile(filepath.Join(n.config.Dir, entries[first].Name()))
	var conf struct {
		Name string `json:"name"`
	}
	if errors.Join(err, json.Unmarshal(text, &conf)) != nil {
		return ""
	}
	return conf.Name
}
