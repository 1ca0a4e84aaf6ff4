package test

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// throttle is a socket that leads to the agent's. Bytes trickle through it, until a terminal has shown their rate and
// the time left. Each test sees both, however slow the machine is and however few bytes there are to transfer.
type throttle struct {
	path    string
	to      string
	at      net.Listener
	copies  sync.WaitGroup
	once    sync.Once
	release chan struct{} // closed when bytes pass at once
}

// rateAndRest is the end of a progress line, such as "1.5MB/s, 12s left".
var rateAndRest = regexp.MustCompile(`[0-9.]+[kMG]?B/s, [0-9hms]+ left`)

// newThrottle listens at a new path for connections to another socket. Its user calls close.
func newThrottle(ts *testscript.TestScript, to string) *throttle {
	dir, err := os.MkdirTemp("", "slow") // not the script's directory, whose path may be too long for a socket
	ts.Check(err)
	ts.Defer(func() { _ = os.RemoveAll(dir) })
	t := &throttle{path: filepath.Join(dir, "berth.sock"), to: to, release: make(chan struct{})}
	t.at, err = net.Listen("unix", t.path)
	ts.Check(err)
	t.copies.Go(t.serve)
	return t
}

// shown lets bytes pass at once if the screen has what they trickle for.
func (t *throttle) shown(screen []byte) {
	if rateAndRest.Match(screen) {
		t.once.Do(func() { close(t.release) })
	}
}

// close ends the socket after its user has ended.
func (t *throttle) close() {
	_ = t.at.Close() // nothing is lost
	t.once.Do(func() { close(t.release) })
	t.copies.Wait()
}

func (t *throttle) serve() {
	for {
		client, err := t.at.Accept()
		if err != nil {
			return // closed
		}
		agent, err := net.Dial("unix", t.to)
		if err != nil {
			_ = client.Close() // the client reports that
			continue
		}
		t.copies.Go(func() { t.trickle(client, agent) })
		t.copies.Go(func() { t.trickle(agent, client) })
	}
}

// trickle copies from one connection to another. An end of either is an end of both.
func (t *throttle) trickle(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	const pieces, pause = 4 << 10, 10 * time.Millisecond
	piece := make([]byte, pieces)
	for {
		n, err := from.Read(piece)
		if n > 0 {
			if _, err := to.Write(piece[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
		select {
		case <-t.release:
		case <-time.After(pause):
		}
	}
}
