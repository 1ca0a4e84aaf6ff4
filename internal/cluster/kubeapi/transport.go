package kubeapi

import (
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/connrotation"
)

// transport is a [http.RoundTripper] that can replace all its connections. A connection that has just been closed
// still accepts a request and then fails it. So the owner calls replace, which gives the next requests connections of
// their own, and then closes the earlier ones.
type transport struct {
	make    func(connrotation.DialFunc) *http.Transport
	current atomic.Pointer[connections]
}

// connections are those between two replacements.
type connections struct {
	*http.Transport
	dialer *connrotation.Dialer
}

// newTransport takes how to make a [http.Transport] that has a dial function. A transport and its clone share their
// connections with HTTP/2, so each must be a new one.
func newTransport(from func(connrotation.DialFunc) *http.Transport) *transport {
	t := &transport{make: from}
	t.current.Store(t.next())
	return t
}

func (t *transport) next() *connections {
	d := connrotation.NewDialer(dialer().DialContext)
	return &connections{t.make(d.DialContext), d}
}

func dialer() *net.Dialer { return &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second} }

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.current.Load().RoundTrip(r)
}

// replace gives new connections to the requests that begin from now on. It returns the earlier connections.
func (t *transport) replace() *connections { return t.current.Swap(t.next()) }

// close closes the connections: requests that use them fail.
func (c *connections) close() {
	c.dialer.CloseAll()
	c.CloseIdleConnections()
}
