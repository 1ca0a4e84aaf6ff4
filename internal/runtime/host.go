package runtime

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/containerd/v2/plugins/snapshots/overlay/overlayutils"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/capability"
	"github.com/berth-run/berth/internal/base/unixsocket"
)

// inspectHost finds the machine's features. It tries overlayfs in the directory for temporary mounts.
func inspectHost(l layout) (host, error) {
	lower, err := mayLowerOOMScore()
	if err != nil {
		return host{}, err
	}
	floor := -1000
	if !lower {
		if floor, err = ownOOMScore(); err != nil {
			return host{}, err
		}
	}
	return host{
		ipv6:        ipv6Enabled(),
		overlay:     overlayutils.Supported(l.temporary()) == nil,
		lowerOOM:    lower,
		oomFloor:    floor,
		systemdInit: exists("/run/systemd/system"),
	}, nil
}

// mayLowerOOMScore reports whether this process has CAP_SYS_RESOURCE, see proc_pid_oom_score_adj(5).
func mayLowerOOMScore() (bool, error) {
	own, err := capability.Effective()
	return own.Has(unix.CAP_SYS_RESOURCE), err
}

// ownOOMScore returns the score that this process has.
func ownOOMScore() (int, error) {
	text, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// ipv6Enabled reports whether new devices get IPv6.
func ipv6Enabled() bool {
	disabled, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/disable_ipv6")
	return err == nil && strings.TrimSpace(string(disabled)) == "0"
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// nriSocket chooses the socket for NRI plugins. containerd would remove the socket of another runtime.
func (r *Runtime) nriSocket(ctx context.Context, sockets string) string {
	own := filepath.Join(sockets, "nri.sock")
	if r.config.NRISocket == "" || r.config.NRIOff {
		return own
	}
	conn, err := unixsocket.Dial(ctx, r.config.NRISocket)
	if err != nil {
		return r.config.NRISocket // nothing listens there
	}
	_ = conn.Close()
	r.config.Log.Warn("another runtime serves the socket for NRI plugins, using another one", "theirs",
		r.config.NRISocket, "ours", own)
	return own
}
