package https

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// upgrades are the requests that turn a connection into streams, by protocol.
var upgrades = []string{
	"POST /exec/default/web/app?command=cat&input=1&output=1&error=1 HTTP/1.1\r\nUpgrade: SPDY/3.1\r\n" +
		"X-Stream-Protocol-Version: v4.channel.k8s.io\r\n",
	"GET /exec/default/web/app?command=cat&input=1&output=1 HTTP/1.1\r\nUpgrade: websocket\r\n" + webSocket +
		"Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n",
	"GET /attach/default/web/app?input=1&output=1&tty=1 HTTP/1.1\r\nUpgrade: websocket\r\n" + webSocket +
		"Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n",
	"POST /portForward/default/web HTTP/1.1\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: portforward.k8s.io\r\n",
	"GET /portForward/default/web HTTP/1.1\r\nUpgrade: websocket\r\n" + webSocket +
		"Sec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io\r\n",
}

const webSocket = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

// FuzzStreams sends any frames on a connection that was upgraded to SPDY or WebSocket. The server goes on, uses little
// memory, and is done with the streams soon after the client has gone.
func FuzzStreams(f *testing.F) {
	spdy := "\x80\x03\x00\x01\x01\x00\x00\x12\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00" +
		"\x78\xbb\xe3\xc6\xa7\xc2\x02\x04\x00\x00"
	frames := []string{
		"", spdy, "\x80\x03\x00\x04\x00\x00\x00\x08\x01\x00\x00\x01\x7f\xff\xff\xff", // a SPDY stream, and its settings
		"\x80\x03\x00\x06\x00\x00\x00\x04\x00\x00\x00\x01", "\x00\x00\x00\x01\x01\xff\xff\xff", // a ping, too much data
		"\x82\x86\x00\x00\x00\x00\x00hello",
		"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00",             // too long
		"\x82\x82\x00\x00\x00\x00\xff\x00",                                     // closes standard input
		"\x82\x95\x00\x00\x00\x00\x04" + `{"Width":1,"Height":2}`,              // another size of the terminal
		"\x89\x80\x00\x00\x00\x00\x88\x82\x00\x00\x00\x00\x03\xe8", "\xf2\x00", // ping and close, reserved bits
		"\x82\x9c\x00\x00\x00\x00" + spdy, // SPDY in WebSocket
	}
	for i := range upgrades {
		for _, frame := range frames {
			f.Add(uint8(i), []byte(frame))
		}
	}
	n := start(f, nil)
	n.running("web", "app")
	host := strings.TrimPrefix(n.url, "https://")
	f.Fuzz(func(t *testing.T, which uint8, frames []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		conn, err := tls.Dial("tcp", host, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }() // closed already, unless the test fails
		if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		// The server may close the connection before it has read everything.
		_, _ = fmt.Fprintf(conn, "%sHost: node\r\nConnection: Upgrade\r\nAuthorization: Bearer admin\r\n\r\n%s",
			upgrades[int(which)%len(upgrades)], frames)
		_ = conn.CloseWrite()
		var late net.Error
		if _, err := io.Copy(io.Discard, conn); errors.As(err, &late) && late.Timeout() {
			t.Error("the server keeps a connection whose client has ended")
		}
		_ = conn.Close() // the server may have closed it
		<-n.active.Idle()
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
			t.Errorf("%d bytes were allocated for %d bytes of frames", grown, len(frames))
		}
		if code, body := n.ask(t, "admin", http.MethodGet, "/healthz", ""); code != http.StatusOK {
			t.Errorf("the server answers %d %s", code, body)
		}
	})
}
