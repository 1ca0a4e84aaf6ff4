package test

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// systemd stands for a service manager: it receives the states that agents report (sd_notify(3)).
type systemd struct {
	conn *net.UnixConn
	env  []string
}

// startServiceManager makes agents that start from now on report to a service manager, whose watchdog expects a
// message within the time that is the argument.
func (h *harness) startServiceManager(ts *testscript.TestScript, args []string) {
	watchdog, err := time.ParseDuration(args[0])
	ts.Check(err)
	path := filepath.Join(rootOf(ts), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	ts.Check(err)
	ts.Defer(func() { _ = conn.Close() })
	ts.Value(daemonKey{}).(*daemon).systemd = &systemd{conn, append(os.Environ(),
		"NOTIFY_SOCKET="+path, "WATCHDOG_USEC="+strconv.FormatInt(watchdog.Microseconds(), 10))}
}

// awaitNotify waits until an agent has sent a message with this text to the service manager.
func (h *harness) awaitNotify(ts *testscript.TestScript, args []string) {
	s := ts.Value(daemonKey{}).(*daemon).systemd
	ts.Check(s.conn.SetReadDeadline(time.Now().Add(patience)))
	for buf := make([]byte, 1024); ; {
		n, err := s.conn.Read(buf)
		if err != nil {
			fail(ts, "read notifications while waiting for %q: %v", args[0], err)
		}
		if strings.Contains(string(buf[:n]), args[0]) {
			return
		}
	}
}
