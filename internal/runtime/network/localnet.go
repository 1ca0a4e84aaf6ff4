package network

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// localnet counts the pods with host ports that are being started. The plugin portmap sets route_localnet on the bridge
// for them, so that a host port also answers on 127.0.0.1 of the machine. It never resets it.
type localnet struct {
	mu       sync.Mutex
	starting int
}

func (l *localnet) add(pods int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starting += pods
}

// closeLocalnet resets route_localnet on the bridge if no pod there has a host port or is about to get one.
func (n *Network) closeLocalnet() error {
	n.localnet.mu.Lock()
	defer n.localnet.mu.Unlock()
	if n.localnet.starting > 0 {
		return nil
	}
	path := filepath.Join("/proc/sys/net/ipv4/conf", n.config.Bridge, "route_localnet")
	value, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && strings.TrimSpace(string(value)) == "0" {
		return nil
	}
	if err != nil {
		return err
	}
	ours, err := attachments(n.config)
	if err != nil {
		return err
	}
	for _, a := range ours {
		if ports, ok := a.CapabilityArgs["portMappings"].([]any); ok && len(ports) > 0 && a.Network == n.config.Bridge {
			return nil
		}
	}
	if err := os.WriteFile(path, []byte("0"), 0); err != nil {
		return fmt.Errorf("reset route_localnet: %w", err)
	}
	return nil
}

// hasHostPort reports whether a sandbox asks for a port of the host.
func hasHostPort(req *runtimeapi.RunPodSandboxRequest) bool {
	for _, p := range req.GetConfig().GetPortMappings() {
		if p.GetHostPort() > 0 {
			return true
		}
	}
	return false
}
