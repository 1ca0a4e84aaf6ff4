package test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// systemd stands for a service manager: it receives the states that agents report (sd_notify(3)). Like the real one it
// reads at once, whether or not the script waits for a message: the queue of the socket holds ten.
type systemd struct {
	env []string

	mu     sync.Mutex
	unread []string
}

// run reads messages until the socket is closed.
func (s *systemd) run(conn *net.UnixConn) {
	for buf := make([]byte, 1024); ; {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.unread = append(s.unread, string(buf[:n]))
		s.mu.Unlock()
	}
}

// next returns whether a message with this text came, and forgets it and the messages before it.
func (s *systemd) next(text string) (ok bool, seen []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen = slices.Clone(s.unread)
	i := slices.IndexFunc(s.unread, func(m string) bool { return strings.Contains(m, text) })
	if i >= 0 {
		s.unread = s.unread[i+1:]
	}
	return i >= 0, seen
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
	s := &systemd{env: append(os.Environ(),
		"NOTIFY_SOCKET="+path, "WATCHDOG_USEC="+strconv.FormatInt(watchdog.Microseconds(), 10))}
	go s.run(conn)
	ts.Value(daemonKey{}).(*daemon).systemd = s
}

// awaitNotify waits until an agent has sent a message with this text to the service manager.
func (h *harness) awaitNotify(ts *testscript.TestScript, args []string) {
	s := ts.Value(daemonKey{}).(*daemon).systemd
	eventually(ts, func() (bool, any) { return s.next(args[0]) })
}
