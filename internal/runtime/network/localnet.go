package network

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
)

// arrangeLocalnet sets route_localnet on the bridge while a pod there has a host port, so that the port also answers on
// 127.0.0.1 of the machine. It resets it when none has.
func (n *Network) arrangeLocalnet() error {
	n.localnet.Lock()
	defer n.localnet.Unlock()
	path := filepath.Join("/proc/sys/net/ipv4/conf", n.config.Bridge, "route_localnet")
	value, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	was, want := strings.TrimSpace(string(value)), "1"
	if !n.pods.Ports() {
		want = "0"
		if was == want {
			return nil
		}
		if ours, err := attachments(n.config); err != nil || slices.ContainsFunc(ours, opensPort(n.config.Bridge)) {
			return err
		}
	}
	if was == want {
		return nil
	}
	if err := os.WriteFile(path, []byte(want), 0); err != nil {
		return fmt.Errorf("set route_localnet of bridge %q: %w", n.config.Bridge, err)
	}
	return nil
}

// opensPort returns a function that reports whether CNI plugins have opened a host port for a pod on the bridge.
func opensPort(bridge string) func(*libcni.NetworkAttachment) bool {
	return func(a *libcni.NetworkAttachment) bool {
		ports, ok := a.CapabilityArgs["portMappings"].([]any)
		return ok && len(ports) > 0 && a.Network == bridge
	}
}
