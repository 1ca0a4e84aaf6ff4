package streamserver

import (
	"net"
	"net/http"
	"testing"

	"github.com/berth-run/berth/internal/base/limit"
	"github.com/berth-run/berth/internal/base/limit/limittest"
	"github.com/berth-run/berth/internal/base/looptest"
)

// startServer runs a server without a runtime, until the test ends.
func startServer(t *testing.T, b limit.Bounds) *Server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := newServer(nil, listener, b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(looptest.Start(t, s.Run, nil))
	return s
}

func TestSlowClientsEnd(t *testing.T) {
	limittest.SlowClientsEnd(t, startServer(t, bounds).http, "/exec/none")
}

func TestConnectionsOfOneClientAreBounded(t *testing.T) {
	few := limit.Bounds{Connections: 3, Requests: 3, AllConnections: 4} // so that none ends before all are open
	address := startServer(t, few).listener.Addr().String()
	end, err := limittest.Fill(t.Context(), address, few.Connections)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	r, err := limittest.Another().Get("http://" + address + "/exec/none")
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	if r.StatusCode != http.StatusNotFound {
		t.Errorf("a request of another client without a token: %s", r.Status)
	}
}
