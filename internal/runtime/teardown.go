package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/libcni"
)

// release takes a sandbox off the networks that it was given and that are not the
// current one: containerd would only ask the plugins of the current one, and leave
// addresses and rules of the others behind. What cannot be taken back, as when its
// plugin is not installed any more, is told in the log and does not hold up the pod.
func (n *podNetwork) release(ctx context.Context, sandbox string) {
	cni := libcni.NewCNIConfig(n.layout().cniBins(), nil)
	attachments, err := cni.GetCachedAttachments(sandbox)
	if err != nil {
		n.config.Log.Warn("Cannot tell the networks of a pod", "sandbox", sandbox, "err", err)
		return
	}
	for _, a := range attachments {
		if a.Network == n.current() {
			continue
		}
		if err := detach(ctx, cni, a); err != nil {
			n.config.Log.Warn("A pod leaves something on a network that it was started with", "sandbox", sandbox,
				"network", a.Network, "err", err)
		}
	}
}

// detach undoes an attachment by the configuration that it was made with.
func detach(ctx context.Context, cni *libcni.CNIConfig, a *libcni.NetworkAttachment) error {
	list, err := libcni.NetworkConfFromBytes(a.Config)
	if err != nil {
		return fmt.Errorf("read its configuration: %w", err)
	}
	netns := a.NetNS
	if !exists(netns) { // plugins take an empty one for a namespace that is gone
		netns = ""
	}
	return cni.DelNetworkList(ctx, list, &libcni.RuntimeConf{
		ContainerID: a.ContainerID, NetNS: netns, IfName: a.IfName, Args: a.CniArgs, CapabilityArgs: a.CapabilityArgs,
	})
}

// current is the name of the network that containerd uses now: that of the first
// file. It is empty when there is none.
func (n *podNetwork) current() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	entries, err := os.ReadDir(n.layout().cniConf())
	first := slices.IndexFunc(entries, func(e os.DirEntry) bool { return isConf(e.Name()) })
	if err != nil || first < 0 {
		return ""
	}
	text, err := os.ReadFile(filepath.Join(n.layout().cniConf(), entries[first].Name()))
	var conf struct {
		Name string `json:"name"`
	}
	if errors.Join(err, json.Unmarshal(text, &conf)) != nil {
		return ""
	}
	return conf.Name
}
