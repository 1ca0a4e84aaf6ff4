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

// systemd is the service manager that agents tell of themselves (sd_notify(3)).
type systemd struct {
	conn *net.UnixConn
	env  []string
}

// listen has the agents that start from now on under a service manager, whose
// watchdog wants to hear of them once in a time.
func (h *harness) listen(ts *testscript.TestScript, args []string) {
	watchdog, err := time.ParseDuration(args[0])
	ts.Check(err)
	path := filepath.Join(rootOf(ts), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	ts.Check(err)
	ts.Defer(func() { _ = conn.Close() })
	ts.Value(daemonKey{}).(*daemon).systemd = &systemd{conn, append(os.Environ(),
		"NOTIFY_SOCKET="+path, "WATCHDOG_USEC="+strconv.FormatInt(watchdog.Microseconds(), 10))}
}

// awaitNotify waits until an agent says so.
func (h *harness) awaitNotify(ts *testscript.TestScript, args []string) {
	s := ts.Value(daemonKey{}).(*daemon).systemd
	ts.Check(s.conn.SetReadDeadline(time.Now().Add(patience)))
	for buf := make([]byte, 1024); ; {
		n, err := s.conn.Read(buf)
		if err != nil {
			fail(ts, "no %s was told: %v", args[0], err)
		}
		if strings.Contains(string(buf[:n]), args[0]) {
			return
		}
	}
}
